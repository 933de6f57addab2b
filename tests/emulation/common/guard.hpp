// SPDX-License-Identifier: MIT
// Memory that notices who leaves it: a page without access before and behind, the data ends at the page behind (up to its
// alignment), and what is left in front and behind is filled with poison (poison.hpp) that is looked at afterwards. Fresh
// memory holds it, too.
#pragma once

#include <csetjmp>
#include <cstddef>
#include <cstdint>
#include <string>

namespace emu {

constexpr size_t ALIGNMENT = 16; // the widest access of a kernel

class guarded {
public:
    guarded(std::string name, size_t size);
    ~guarded();
    guarded(const guarded &) = delete;
    guarded & operator=(const guarded &) = delete;

    void * data() const { return ptr; }
    size_t size() const { return n; }

    void poison();
    void rename(std::string s) { name = std::move(s); }

    // what was written outside of it, or ""
    std::string check() const;

    // where an address is, in words: "8 bytes past the end of src0 (96 bytes)"
    static std::string describe(const void * address);

private:
    std::string     name;
    size_t          n;
    unsigned char * map;
    size_t          map_size;
    unsigned char * ptr;
};

// a fault in a kernel goes to `exit`, with the message that fault_message() then returns; null: faults end the process
void        set_fault_exit(sigjmp_buf * exit);
std::string fault_message();

} // namespace emu
