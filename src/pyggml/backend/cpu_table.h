// SPDX-License-Identifier: MIT
// The functions of ggml-cpu.h, which the binding calls through a table. A build for one CPU links
// them. In a build with variants the table is empty until `pyggml_load_cpu` has loaded one.
// PYGGML_CPU_FUNCTIONS(F) is F(name) for each.

#include <cstring>
#ifdef _WIN32
#include <string>
#include <windows.h>
#else
#include <dlfcn.h>
#endif

static struct {
#define PYGGML_FIELD(name) decltype(&::name) name;
    PYGGML_CPU_FUNCTIONS(PYGGML_FIELD)
} pyggml_cpu = {
#ifdef GGML_USE_CPU
#define PYGGML_LINKED(name) &::name,
    PYGGML_CPU_FUNCTIONS(PYGGML_LINKED)
#endif
};

#ifdef _WIN32
static void * pyggml_open(const char * path) {
    const int    length = MultiByteToWideChar(CP_UTF8, 0, path, -1, nullptr, 0);
    std::wstring wide(length, L'\0');
    MultiByteToWideChar(CP_UTF8, 0, path, -1, &wide[0], length);
    return (void *) LoadLibraryExW(wide.c_str(), nullptr, LOAD_WITH_ALTERED_SEARCH_PATH);
}
static void * pyggml_symbol(void * library, const char * name) {
    return (void *) GetProcAddress((HMODULE) library, name);
}
static void         pyggml_close(void * library) { FreeLibrary((HMODULE) library); }
static const char * pyggml_open_error(void) { return "the system cannot load it"; }
#else
static void *       pyggml_open(const char * path) { return dlopen(path, RTLD_NOW | RTLD_LOCAL); }
static void *       pyggml_symbol(void * library, const char * name) { return dlsym(library, name); }
static void         pyggml_close(void * library) { dlclose(library); }
static const char * pyggml_open_error(void) { return dlerror(); }
#endif

extern "C" const char * pyggml_build_of_ggml(void);
extern "C" const char * pyggml_build_of_ggml_base(void);

// The library of another build among those that the module is linked with; NULL if there is none.
static const char * pyggml_other_build(void) {
    if (std::strcmp(pyggml_build_of_ggml_base(), PYGGML_BUILD) != 0) {
        return "pyggml-base";
    }
    return std::strcmp(pyggml_build_of_ggml(), PYGGML_BUILD) != 0 ? "pyggml" : nullptr;
}

// The file of another ggml whose functions a library that is opened now would call instead of ours,
// as they come first in the global scope; NULL if there is none. Elsewhere a library's calls name
// the library.
static const char * pyggml_other_ggml(void) {
#ifdef __linux__
    const struct {
        const char * name;
        const void * ours; // of the library that must have it, under a name that no other uses
    } functions[] = {
        { "ggml_init",             (const void *) &pyggml_build_of_ggml_base },
        { "ggml_backend_load_all", (const void *) &pyggml_build_of_ggml      },
    };
    static Dl_info found;
    for (const auto & function : functions) {
        const void * called = dlsym(RTLD_DEFAULT, function.name);
        Dl_info      ours;
        if (called && dladdr(function.ours, &ours) && dladdr(called, &found) &&
            found.dli_fbase != ours.dli_fbase) {
            return found.dli_fname;
        }
    }
#endif
    return nullptr;
}

// Open a library of this build by its path (UTF-8 on Windows). Without one, `reason` says why.
static void * pyggml_open_own(const char * path, const char ** reason) {
    if (pyggml_other_ggml()) {
        *reason = "another ggml is in the global scope of symbols";
        return nullptr;
    }
    void * library = pyggml_open(path);
    if (!library) {
        *reason = pyggml_open_error();
        return nullptr;
    }
    const char * build = (const char *) pyggml_symbol(library, "pyggml_build");
    if (!build || std::strcmp(build, PYGGML_BUILD) != 0) {
        pyggml_close(library);
        *reason = "it belongs to another build";
        return nullptr;
    }
    return library;
}

// Load a library of the CPU backend from a path, register it and fill the table.
// Returns NULL, or the reason why not; the text is valid until the next call.
static const char * pyggml_load_cpu(const char * path) {
    const char * reason  = nullptr;
    void *       library = pyggml_open_own(path, &reason);
    if (!library) {
        return reason;
    }
    auto found = pyggml_cpu;
#define PYGGML_FIND(name)                                                  \
    found.name = (decltype(found.name)) pyggml_symbol(library, #name);     \
    if (!found.name) {                                                     \
        pyggml_close(library);                                             \
        return "it lacks " #name;                                          \
    }
    PYGGML_CPU_FUNCTIONS(PYGGML_FIND)
#ifndef GGML_USE_CPU
    if (!ggml_backend_load(path)) {
        pyggml_close(library);
        return "ggml rejects it for this CPU";
    }
#endif
    pyggml_cpu = found; // the library stays for as long as the process
    return nullptr;
}

// Load and register a backend of another package. Returns as `pyggml_load_cpu`. Not by
// ggml_backend_load, which logs an error of its own where there is no driver.
static const char * pyggml_load_backend(const char * path) {
    const char * reason  = nullptr;
    void *       library = pyggml_open_own(path, &reason);
    if (!library) {
        return reason;
    }
    // From here on the library stays open: threads of a driver may live in it.
    auto init = (ggml_backend_reg_t (*)(void)) pyggml_symbol(library, "ggml_backend_init");
    auto reg  = init ? init() : nullptr;
    if (!reg) {
        return "it does not start";
    }
    ggml_backend_register(reg);
    return nullptr;
}
