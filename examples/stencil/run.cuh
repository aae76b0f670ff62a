// Runs a model in compressed and in plain memory, compares every value, and prints the speed of both.
// With --card-times it then runs a grid whose plain fields would need that many times the GPU's memory. Its
// boxes of `apart` planes begin alike and do not touch, so plain memory computes one, and all are compared.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "buddy_stencil.cuh"

using buddy::stencil::Grid;
using buddy::u64;

struct Ask {
    Grid cells = {1024, 1024, 1024};
    int apart = 256, thick = 0, steps = 400;  // thick: 0 for the model's own
    double card_times = 0, host_gb = 8;
    bool everywhere = false, windows = false;
};

inline Ask read_options(int count, char** options) {
    Ask ask;
    for (int i = 1; i < count; i++) {
        const char *name = options[i], *value = i + 1 < count ? options[i + 1] : "";
        auto is = [&](const char* wanted) { return strcmp(name, wanted) == 0; };
        if (is("--everywhere")) ask.everywhere = true;
        else if (is("--windows")) ask.windows = true;
        else if (is("--cells") && sscanf(value, "%d,%d,%d", &ask.cells.nx, &ask.cells.ny, &ask.cells.nz) == 3) i++;
        else if (is("--apart") && (ask.apart = atoi(value)) > 0) i++;
        else if (is("--thick") && (ask.thick = atoi(value)) > 0) i++;
        else if (is("--steps") && (ask.steps = atoi(value)) > 0) i++;
        else if (is("--card-times") && (ask.card_times = atof(value)) > 0) i++;
        else if (is("--host-gb") && (ask.host_gb = atof(value)) >= 0) i++;
        else printf("%s: options are --cells X,Y,Z --apart CELLS --thick CELLS --steps NUMBER --card-times NUMBER --host-gb GB "
                    "--everywhere --windows\n", name), exit(2);
    }
    return ask;
}

class Stopwatch {
public:
    Stopwatch() { buddy::stencil::check(cudaEventCreate(&from_)), buddy::stencil::check(cudaEventCreate(&to_)); }
    ~Stopwatch() { cudaEventDestroy(from_), cudaEventDestroy(to_); }
    // Returns the seconds that the GPU takes for a function's work.
    template <class Function> double operator()(Function work) {
        buddy::stencil::check(cudaEventRecord(from_));
        work();
        buddy::stencil::check(cudaEventRecord(to_)), buddy::stencil::check(cudaEventSynchronize(to_));
        float ms;
        buddy::stencil::check(cudaEventElapsedTime(&ms, from_, to_));
        return 1e-3 * ms;
    }

private:
    cudaEvent_t from_, to_;
};

// 10^9 cells times steps a second: over the run, and over its last tenth.
struct Speed {
    double mean = 0, end = 0;
};
struct Result {
    Speed packed, plain, simple;
    u64 wrong = 0;
};

// Runs a grid; `box` is the grid of plain memory, which repeats in it. Prints a row for every tenth of the
// run.
template <class Model>
Result run(const Model& model, const Ask& ask, Grid n, Grid box, size_t host_bytes) {
    using namespace buddy::stencil;
    Stopwatch stopwatch;
    Result result;
    double packed_seconds = 0, plain_seconds = 0;
    Plain<Model> plain(model, box);
    Packed<Model> packed(model, n, 0, host_bytes);
    if (ask.windows) packed.use_windows();
    printf("%d x %d x %d cells, %.1f GB in plain memory; %.1f GB on the GPU and %.1f GB of the host for pages\n", n.nx, n.ny, n.nz,
           8e-9 * Model::FIELDS * n.cells(), 1e-9 * packed.device_bytes(), 1e-9 * packed.host_bytes());
    printf("%6s %8s %8s %8s %8s %9s %9s %10s %10s %8s\n", "step", "pages", "windows", "raw", "on host", "GPU, GB", "host, GB", "packed", "plain", "differ");
    for (int tenth = 0, done = 0; tenth < 10; tenth++) {
        const int until = ask.steps * (tenth + 1) / 10, steps = until - done;
        if (steps == 0) continue;
        const double a = stopwatch([&] { for (int i = 0; i < steps; i++) packed.step(); });
        const double b = stopwatch([&] { for (int i = 0; i < steps; i++) plain.step(); });
        done = until, packed_seconds += a, plain_seconds += b;
        packed.look();
        const u64 wrong = packed.differing(plain);
        const Shares s = packed.shares();
        result.wrong += wrong;
        result.packed = {1e-9 * n.cells() * done / packed_seconds, 1e-9 * n.cells() * steps / a};
        result.plain = {1e-9 * box.cells() * done / plain_seconds, 1e-9 * box.cells() * steps / b};
        printf("%6d %7.1f%% %7.1f%% %7.1f%% %7.1f%% %9.1f %9.1f %10.1f %10.1f %8llu\n", done, 100 * s.lit, 100 * s.window, 100 * s.raw,
               100 * s.host, 1e-9 * UNIT * packed.books().device_used, 1e-9 * UNIT * packed.books().host_used, result.packed.end,
               result.plain.end, wrong);
        fflush(stdout);
    }
    const int steps = ask.steps < 20 ? ask.steps : 20;
    const double c = stopwatch([&] { for (int i = 0; i < steps; i++) plain.simple(); });
    for (int i = 0; i < steps; i++) packed.step();
    result.wrong += packed.differing(plain);
    result.simple.mean = result.simple.end = 1e-9 * box.cells() * steps / c;
    return result;
}

// `make` returns the model for a grid; with `repeats`, its boxes are independent of their place in the grid.
template <class Make>
int run_all(int count, char** options, bool repeats, Make make) {
    const Ask ask = read_options(count, options);
    if (ask.card_times > 0 && !repeats) return fprintf(stderr, "this model has no boxes to compare: leave out --card-times\n"), 2;
    using Model = decltype(make(ask, ask.cells));
    try {
        size_t left, all;
        buddy::stencil::check(cudaMemGetInfo(&left, &all));
        const Result fits = run(make(ask, ask.cells), ask, ask.cells, ask.cells, 0);
        const double plain_mean = std::max(fits.plain.mean, fits.simple.mean), plain_end = std::max(fits.plain.end, fits.simple.end);
        printf("fits: packed %.1f over the run, %.1f at its end; plain with tiles %.1f, %.1f; plain, a thread per cell %.1f "
               "(10^9 cells a second)\n", fits.packed.mean, fits.packed.end, fits.plain.mean, fits.plain.end, fits.simple.mean);
        printf("fits: packed is %.2f times the faster plain over the run, %.2f at its end\n", fits.packed.mean / plain_mean, fits.packed.end / plain_end);
        u64 wrong = fits.wrong;
        if (ask.card_times > 0) {
            Grid n = ask.cells, box = ask.cells;
            box.nz = ask.apart;
            n.nz = ask.apart * (int)std::ceil(ask.card_times * all / (8.0 * Model::FIELDS * box.cells()));
            const Result large = run(make(ask, n), ask, n, box, (size_t)(1e9 * ask.host_gb));
            wrong += large.wrong;
            const double times = 8.0 * Model::FIELDS * n.cells() / all;
            printf("%.2f times the card: packed %.1f over the run, %.1f at its end\n", times, large.packed.mean, large.packed.end);
            printf("%.2f times the card: %.2f times its speed where it fits over the run, %.2f at its end\n", times,
                   large.packed.mean / fits.packed.mean, large.packed.end / fits.packed.end);
        }
        printf("%s\n", wrong == 0 ? "every value is the same" : "VALUES DIFFER");
        return wrong != 0;
    } catch (const std::exception& error) {
        fprintf(stderr, "%s\n", error.what());
        return 1;
    }
}
