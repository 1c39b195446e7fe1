/* A driver's library of our own, for nvidia-ml-py to load: two cards, one process on each (its pid is in the
   environment), and what MEMLENS_TEST_DRIVER says about it. The calls and structs are those of NVML 12. */
#include <stdlib.h>
#include <string.h>

typedef struct { unsigned int pid; unsigned long long used; unsigned int gpu, compute; } process;
typedef struct { unsigned long long total, free, used; } memory;
typedef struct { unsigned int version; unsigned long long total, reserved, free, used; } memory2;

enum { OK = 0, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOADED = 9 };
static char cards[2], parts[2];

static int mode(const char *name) { const char *m = getenv("MEMLENS_TEST_DRIVER"); return m && !strcmp(m, name); }
static int second(void *device) { return device == &cards[1]; }
static int is_part(void *device) { return device == &parts[0] || device == &parts[1]; }

int nvmlInitWithFlags(unsigned int flags) { return mode("none") ? LOADED : OK; }
int nvmlShutdown(void) { return OK; }
int nvmlDeviceGetCount_v2(unsigned int *count) { *count = 2; return OK; }
int nvmlDeviceGetHandleByIndex_v2(unsigned int i, void **device) { *device = &cards[i]; return OK; }
int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = &cards[1];
    return strcmp(uuid, "GPU-two") ? NOT_FOUND : OK;
}
int nvmlDeviceGetName(void *device, char *name, unsigned int size) { strncpy(name, "NVIDIA H100", size); return OK; }
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) { *major = 9; *minor = 0; return OK; }
int nvmlSystemGetDriverVersion(char *version, unsigned int size) { strncpy(version, "550.54", size); return OK; }
int nvmlDeviceGetMemoryInfo(void *device, memory *m) {
    m->total = 80ULL << 30; m->used = second(device) ? 3ULL << 30 : 2ULL << 30; m->free = m->total - m->used;
    return OK;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, memory2 *m) {
    m->total = 80ULL << 30; m->reserved = 1ULL << 29; m->used = second(device) ? 3ULL << 30 : 2ULL << 30;
    m->free = m->total - m->used - m->reserved;
    return OK;
}
int nvmlDeviceGetMigMode(void *device, unsigned int *now, unsigned int *later) {
    *now = *later = mode("split");
    return mode("split") ? OK : NOT_SUPPORTED;
}
int nvmlDeviceGetMaxMigDeviceCount(void *device, unsigned int *count) { *count = 7; return OK; }
int nvmlDeviceGetMigDeviceHandleByIndex(void *device, unsigned int i, void **part) {
    *part = &parts[i ? 1 : 0];
    return i < 2 ? OK : NOT_FOUND;
}
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned int *count, process *found) {
    const char *pid = getenv("MEMLENS_TEST_PID");
    unsigned int room = *count;
    if (mode("denied") || (mode("half") && second(device)) || (mode("split") && !is_part(device))) return NO_PERMISSION;
    *count = 1;
    if (room < 1 || !found) return TOO_SMALL;
    found[0].pid = pid ? atoi(pid) : 1;
    found[0].used = mode("hidden") ? ~0ULL : mode("absurd") ? 1ULL << 60 : 512ULL << 20;
    return OK;
}
const char *nvmlErrorString(int code) {
    return code == NO_PERMISSION ? "Insufficient Permissions" : code == LOADED ? "Driver Not Loaded" : "Error";
}
