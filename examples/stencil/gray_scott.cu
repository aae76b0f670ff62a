// Gray-Scott in compressed memory, compared with plain memory value by value. Neither a library nor a
// targets file is needed:
//
//     buddy gpu headers headers
//     nvcc -std=c++17 -O3 -arch=sm_90 -fmad=false -Iheaders examples/stencil/gray_scott.cu -o gray_scott
//     ./gray_scott --card-times 1.5
#include "run.cuh"

#include "gray_scott.cuh"

int main(int count, char** options) {
    return run_all(count, options, true, [](const Ask& ask, const Grid&) {
        GrayScott model;
        model.apart = ask.apart, model.thick = ask.thick ? ask.thick : ask.apart / 4, model.everywhere = ask.everywhere;
        return model;
    });
}
