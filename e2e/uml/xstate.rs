//! `ptrace` for a User-Mode Linux of 6.1 on processors that have more registers than it knows of.
//!
//! That kernel keeps 2,696 bytes of a process's extended registers, up to AVX-512 and the protection keys.
//! Linux takes no write of registers that is shorter than all that the processor has: with AMX, as Intel's
//! servers have it since 2023, it is 11,008 bytes, and no process of the guest would ever run. So a write
//! is made as long as Linux wants it. What is added is zero, which is how those registers begin: nobody in
//! the guest can have been given the right to use them.
//!
//! Preloaded by `kernel`; where the kernel knows all registers, it changes nothing.
//! Source: xstateregs_set in Linux's arch/x86/kernel/fpu/regset.c; FP_SIZE in its arch/um. Mended in 6.12.

#![no_std]

use core::ffi::{c_char, c_int, c_long, c_uint, c_void};
use core::ptr::{addr_of_mut, copy_nonoverlapping, null_mut};

const PTRACE_GETREGSET: c_uint = 0x4204;
const PTRACE_SETREGSET: c_uint = 0x4205;
const NT_X86_XSTATE: usize = 0x202;
const RTLD_NEXT: *mut c_void = usize::MAX as *mut c_void;

/// More than any processor has.
const MOST: usize = 64 << 10;

/// As of sys/uio.h.
#[repr(C)]
struct Iovec {
    base: *mut u8,
    len: usize,
}

type Ptrace = extern "C" fn(c_uint, c_int, *mut c_void, *mut c_void) -> c_long;

unsafe extern "C" {
    fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void;
    fn abort() -> !;
}

// The kernel is one thread, and its stack is small.
static mut REAL: *mut c_void = null_mut();
static mut REGISTERS: [u8; MOST] = [0; MOST];
/// How many bytes Linux has of a process's registers; 0 before it was asked.
static mut HAS: usize = 0;

/// The one of the C library.
fn real() -> Ptrace {
    unsafe {
        if REAL.is_null() {
            REAL = dlsym(RTLD_NEXT, c"ptrace".as_ptr());
        }
        if REAL.is_null() {
            abort();
        }
        core::mem::transmute::<*mut c_void, Ptrace>(REAL)
    }
}

/// As ptrace(2), but that writes of extended registers may be short.
///
/// # Safety
/// As ptrace(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ptrace(
    request: c_uint,
    pid: c_int,
    address: *mut c_void,
    data: *mut c_void,
) -> c_long {
    let is_extended = address as usize == NT_X86_XSTATE;
    if request != PTRACE_SETREGSET || !is_extended {
        return real()(request, pid, address, data);
    }
    unsafe {
        let registers = addr_of_mut!(REGISTERS).cast::<u8>();
        if HAS == 0 {
            let mut all = Iovec { base: registers, len: MOST };
            let asked = (&raw mut all).cast();
            if real()(PTRACE_GETREGSET, pid, address, asked) != 0 {
                return real()(request, pid, address, data);
            }
            HAS = all.len;
            registers.write_bytes(0, HAS);
        }
        let given = &*data.cast::<Iovec>();
        if given.len >= HAS {
            return real()(request, pid, address, data);
        }
        copy_nonoverlapping(given.base, registers, given.len);
        let mut all = Iovec { base: registers, len: HAS };
        real()(request, pid, address, (&raw mut all).cast())
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo) -> ! {
    unsafe { abort() }
}
