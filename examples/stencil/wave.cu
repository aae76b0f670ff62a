// An acoustic wave in compressed memory, compared with plain memory value by value:
//
//     buddy gpu headers headers
//     nvcc -std=c++17 -O3 -arch=sm_90 -fmad=false -Iheaders examples/stencil/wave.cu -o wave && ./wave
#include "run.cuh"

#include "wave.cuh"

int main(int count, char** options) {
    return run_all(count, options, false, [](const Ask& ask, const Grid& n) {
        Wave model = {n.nx, n.ny, n.nz};
        model.apart = ask.apart, model.everywhere = ask.everywhere;
        return model;
    });
}
