// SPDX-License-Identifier: MIT
#pragma once

#include <string>

namespace emu {

// A thread of a kernel uses what lies at an address that is no multiple of its alignment; ends the kernel. Of the emulated
// device: what it knows of the address it adds.
[[noreturn]] void misaligned(const std::string & what, const void * address);

} // namespace emu
