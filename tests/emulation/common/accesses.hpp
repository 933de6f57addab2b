// SPDX-License-Identifier: MIT
// What -fsanitize=kernel-address calls before each access, for the one file of a program that counts them: it has emu::note.
#pragma once

#define ACCESS(n) \
    extern "C" void __asan_load##n##_noabort (const void * p) { emu::note(p, n, false); } \
    extern "C" void __asan_store##n##_noabort(const void * p) { emu::note(p, n, true); }
ACCESS(1)
ACCESS(2)
ACCESS(4)
ACCESS(8)
ACCESS(16)
extern "C" void __asan_loadN_noabort (const void * p, size_t n) { emu::note(p, n, false); }
extern "C" void __asan_storeN_noabort(const void * p, size_t n) { emu::note(p, n, true); }
extern "C" void __asan_handle_no_return() {}
extern "C" void __asan_before_dynamic_init(const void *) {}
extern "C" void __asan_after_dynamic_init() {}
