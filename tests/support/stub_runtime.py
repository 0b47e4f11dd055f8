"""A stub of the CUDA runtime, for machines without a GPU: a libcudart.so.12 whose kernels run on the host, and programs
that call it. Needs a C compiler."""

import subprocess

from diloco_chaos.harness.preload.cuda import CUDA_CALLS

RUNTIME = """
#include <stdlib.h>
#include <string.h>
struct dim3 { unsigned x, y, z; };
typedef void *stream;
#define YES { return 0; }
int cudaGetDeviceCount(int *count) { *count = 1; return 0; }
int cudaSetDevice(int device) { return device ? 101 : 0; }
int cudaMalloc(void **at, size_t size) { *at = malloc(size); return *at ? 0 : 2; }
int cudaMallocAsync(void **at, size_t size, stream s) { return cudaMalloc(at, size); }
int cudaFree(void *at) { free(at); return 0; }
int cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t n, stream s) {
    ((void (*)(void **, unsigned))kernel)(arguments, grid.z * block.z);
    return 0;
}
int __cudaLaunchKernel(const void *kernel, struct dim3 grid, struct dim3 block, void **arguments, size_t n, stream s) {
    return cudaLaunchKernel(kernel, grid, block, arguments, n, s);
}
int cudaLaunchKernelExC(const void *config, const void *kernel, void **arguments) YES
int cudaGraphLaunch(void *graph, stream s) YES
int cudaMemcpy(void *to, const void *from, size_t size, int kind) { memcpy(to, from, size); return 0; }
int cudaMemcpyAsync(void *to, const void *from, size_t size, int kind, stream s) { memcpy(to, from, size); return 0; }
int cudaMemset(void *at, int value, size_t size) { memset(at, value, size); return 0; }
int cudaMemsetAsync(void *at, int value, size_t size, stream s) { memset(at, value, size); return 0; }
int cudaStreamSynchronize(stream s) YES
int cudaDeviceSynchronize(void) YES
int cudaEventSynchronize(void *event) YES
int cudaStreamQuery(stream s) YES
int cudaEventQuery(void *event) YES
int cudaGetLastError(void) YES
int cudaPeekAtLastError(void) YES
"""
VERSIONED = "libcudart.so.12 { global: cuda*; __cuda*; local: *; };"
"""As NVIDIA's own has its symbols."""
HEAD = """
#include <stddef.h>
#include <stdio.h>
#include <string.h>
struct dim3 { unsigned x, y, z; };
int cudaGetDeviceCount(int *), cudaSetDevice(int), cudaMalloc(void **, size_t),
    cudaMallocAsync(void **, size_t, void *),
    cudaLaunchKernel(const void *, struct dim3, struct dim3, void **, size_t, void *),
    __cudaLaunchKernel(const void *, struct dim3, struct dim3, void **, size_t, void *),
    cudaLaunchKernelExC(const void *, const void *, void **), cudaGraphLaunch(void *, void *),
    cudaMemcpy(void *, const void *, size_t, int), cudaMemcpyAsync(void *, const void *, size_t, int, void *),
    cudaMemset(void *, int, size_t), cudaMemsetAsync(void *, int, size_t, void *), cudaStreamSynchronize(void *),
    cudaDeviceSynchronize(void), cudaEventSynchronize(void *), cudaStreamQuery(void *), cudaEventQuery(void *),
    cudaGetLastError(void), cudaPeekAtLastError(void);
static const struct dim3 one = {1, 1, 1};
"""
CALLS = HEAD + """
static char a[64], b[64];
static void *at;
static int count;
static void store(void **arguments, unsigned value) { *(unsigned *)arguments[0] = value; }
static int launched(int (*launch)(const void *, struct dim3, struct dim3, void **, size_t, void *)) {
    unsigned value = 0;
    void *arguments[] = {&value};
    int code = launch(store, (struct dim3){1, 2, 3}, (struct dim3){4, 5, 6}, arguments, 0, NULL);
    return code ? code : value == 18 ? 0 : -1;
}
static int call(const char *name, size_t size) {
#define IS(function, arguments) if (strcmp(name, #function) == 0) return function arguments;
    IS(cudaGetDeviceCount, (&count)) IS(cudaSetDevice, (0)) IS(cudaMalloc, (&at, size))
    IS(cudaMallocAsync, (&at, size, NULL)) IS(cudaLaunchKernelExC, (NULL, NULL, NULL)) IS(cudaGraphLaunch, (NULL, NULL))
    IS(cudaMemcpy, (a, b, 64, 4)) IS(cudaMemcpyAsync, (a, b, 64, 4, NULL)) IS(cudaMemset, (a, 0, 64))
    IS(cudaMemsetAsync, (a, 0, 64, NULL)) IS(cudaStreamSynchronize, (NULL)) IS(cudaDeviceSynchronize, ())
    IS(cudaEventSynchronize, (NULL)) IS(cudaStreamQuery, (NULL)) IS(cudaEventQuery, (NULL)) IS(cudaGetLastError, ())
    IS(cudaPeekAtLastError, ())
    return launched(strncmp(name, "__", 2) ? cudaLaunchKernel : __cudaLaunchKernel);
}
int loop(void) {
    char name[64];
    size_t size;
    while (scanf("%63s %zu", name, &size) == 2) {
        printf("%d %d\\n", call(name, size), count);
        fflush(stdout);
    }
    return 0;
}
"""
"""Makes the calls whose names it reads, and writes what each returned, and how many devices there are."""
LINKED = "int loop(void); int main(void) { return loop(); }"
LOOKS_UP = "#include <dlfcn.h>\n#include <stddef.h>\nstatic void *runtime;\n" + CALLS.replace("static char a", "".join(
    f"#define {name} ((typeof(&{name}))dlsym(runtime, \"{name}\"))\n"
    for name in [*CUDA_CALLS, "__cudaLaunchKernel"]) + "static char a", 1) + """
int main(int count, char **names) { return (runtime = dlopen(names[1], RTLD_NOW | RTLD_LOCAL)) ? loop() : 1; }
"""
"""The same, of functions that it looks up in the runtime itself."""
LOADS = """
#include <dlfcn.h>
int main(int count, char **names) { return ((int (*)(void))dlsym(dlopen(names[1], RTLD_NOW | RTLD_LOCAL), "loop"))(); }
"""
DEVICE = HEAD + """
static double *on_device;
static void train(void **arguments, unsigned times) { **(double **)arguments[0] *= 1 - 0.01 * times; }
int cudaFree(void *);
int begin(void) {
    int count, code = cudaGetDeviceCount(&count);
    return code ? code : cudaSetDevice(0);
}
int step(double *loss) {
    void *arguments[] = {&on_device};
    int code = cudaMalloc((void **)&on_device, sizeof *on_device);
    code = code ? code : cudaMemcpy(on_device, loss, sizeof *loss, 1);
    code = code ? code : cudaLaunchKernel(train, one, one, arguments, 0, NULL);
    code = code ? code : cudaDeviceSynchronize();
    code = code ? code : cudaMemcpy(loss, on_device, sizeof *loss, 2);
    return code ? code : cudaFree(on_device);
}
"""
"""What a job trains with: a loss that a kernel makes smaller."""

NVML = """
#include <unistd.h>
static int devices[1];
int nvmlInit_v2(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 1; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) { *device = devices; return index ? 2 : 0; }
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *degrees) {
    *degrees = 40;
    return device == devices ? 0 : 2;
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int since, unsigned long long *errors) {
    *errors = 7;
    return 0;
}
int nvmlDeviceGetMemoryErrorCounter(void *device, int kind, int since, int where, unsigned long long *errors) {
    *errors = where;
    return 0;
}
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) { return 0; }
int nvmlEventSetWait_v2(void *set, void *event, unsigned ms) { usleep(ms * 1000); return 10; }
"""
MONITOR = """
#include <stdio.h>
int nvmlDeviceGetHandleByIndex_v2(unsigned, void **), nvmlDeviceGetTemperature(void *, int, unsigned *);
int loop(void) {
    void *device;
    unsigned degrees = 0;
    int code = nvmlDeviceGetHandleByIndex_v2(0, &device);
    code = code ? code : nvmlDeviceGetTemperature(device, 0, &degrees);
    printf("%d %u\\n", code, degrees);
    return 0;
}
"""
"""Asks NVML for a temperature."""


def compiled(folder, name, source, *options):
    """A program or a library in a folder, beside its source; it finds others that are there."""
    (folder / f"{name}.c").write_text(source)
    subprocess.run(["cc", "-O1", "-w", "-fPIC", "-o", folder / name, folder / f"{name}.c", f"-L{folder}",
                    f"-Wl,-rpath,{folder}", *options], check=True)
    return folder / name


def stub_runtime(folder):
    """The runtime, under the name that NVIDIA's has."""
    (folder / "versions").write_text(VERSIONED)
    return compiled(folder, "libcudart.so.12", RUNTIME, "-shared", "-Wl,-soname,libcudart.so.12,-Bsymbolic",
                    f"-Wl,--version-script={folder}/versions")


def stub_nvml(folder):
    """NVML, under the name that NVIDIA's has."""
    return compiled(folder, "libnvidia-ml.so.1", NVML, "-shared", "-Wl,-soname,libnvidia-ml.so.1,-Bsymbolic")


def monitors(folder):
    """What asks NVML in this folder: a program that is linked with it, and one that loads what is."""
    library = compiled(folder, "libmonitor.so", MONITOR, "-shared", "-l:libnvidia-ml.so.1")
    linked = compiled(folder, "monitor", LINKED, "-l:libmonitor.so", "-Wl,--no-as-needed", "-l:libnvidia-ml.so.1")
    return {"linked": [linked], "loaded later": [compiled(folder, "loads-monitor", LOADS, "-ldl"), library]}


def callers(folder):
    """What makes calls of the runtime in this folder: a program that is linked with it, one that loads what is, and one
    that looks its functions up."""
    library = compiled(folder, "libcalls.so", CALLS, "-shared", "-l:libcudart.so.12")
    linked = compiled(folder, "linked", LINKED, "-l:libcalls.so", "-Wl,--no-as-needed", "-l:libcudart.so.12")
    return {"linked": [linked], "loaded later": [compiled(folder, "loads", LOADS, "-ldl"), library],
            "looked up": [compiled(folder, "looks-up", LOOKS_UP, "-ldl"), folder / "libcudart.so.12"]}


def device(folder):
    """A library with which a job trains on the runtime in this folder."""
    return compiled(folder, "libdevice.so", DEVICE, "-shared", "-l:libcudart.so.12")
