//! The memory of another process of this user on this host, read and written where it lies.
#![allow(unsafe_code)] // The system copies between two processes, by addresses.

use crate::errors;
use crate::given::{Given, given};
use crate::memory::{data, plain_bytes, writable};
use numpy::PyUntypedArray;
use pyo3::prelude::*;
use std::io;

/// A process whose memory the system lets this one touch. Where it does not, methods raise OSError.
#[pyclass(frozen, module = "ahbm._core")]
pub struct Neighbour {
    pid: u32,
}

#[pymethods]
impl Neighbour {
    #[new]
    fn new(pid: Given<u32>) -> PyResult<Self> {
        given!(pid);
        Ok(Self { pid })
    }

    /// Lets the process `pid` touch the memory of this one, where the system asks for that.
    #[staticmethod]
    fn admit(pid: Given<u32>) -> PyResult<()> {
        given!(pid);
        system::admit(pid);
        Ok(())
    }

    /// Fills a writable C-contiguous array of any numeric dtype with what is at `address` there. The interpreter lock is
    /// released meanwhile. Raises `DataError` for another array, OSError where there is no such memory.
    fn read(&self, py: Python<'_>, address: Given<u64>, out: Given<Bound<'_, PyUntypedArray>>) -> PyResult<()> {
        given!(address, out);
        let len = plain_bytes(&out).and_then(|len| writable(&out).map(|()| len));
        let len = len.map_err(|finding| errors::raise_one(py, finding))?;
        self.transfer(py, address, data(&out), len, system::read)
    }

    /// Copies a C-contiguous array of any numeric dtype to `address` there. The interpreter lock is released meanwhile.
    /// Raises `DataError` for another array, OSError where there is no such memory.
    fn write(&self, py: Python<'_>, address: Given<u64>, source: Given<Bound<'_, PyUntypedArray>>) -> PyResult<()> {
        given!(address, source);
        let len = plain_bytes(&source).map_err(|finding| errors::raise_one(py, finding))?;
        self.transfer(py, address, data(&source), len, system::write)
    }
}

impl Neighbour {
    /// Copies `len` bytes between `here`, which the caller has checked, and `there`.
    fn transfer(&self, py: Python<'_>, there: u64, here: *mut u8, len: usize, copy: system::Copy) -> PyResult<()> {
        let (pid, here) = (self.pid, here as usize);
        py.detach(|| {
            let mut done = 0;
            while done < len {
                // SAFETY: `here` is the memory of an array that has `len` bytes and is alive during the call, and the
                // system checks every address of the other process.
                done += unsafe { copy(pid, (here + done) as *mut u8, there.wrapping_add(done as u64), len - done) }?;
            }
            Ok::<(), io::Error>(())
        })?;
        Ok(())
    }
}

#[cfg(target_os = "linux")]
mod system {
    use std::ffi::{c_int, c_ulong, c_void};
    use std::io;

    /// Bytes of one call: the system looks at no signals within it.
    const MOST: usize = 1 << 26;
    /// Names a process that may do what a debugger may ("Yama").
    const PR_SET_PTRACER: c_int = 0x5961_6d61;

    #[repr(C)]
    struct Range {
        start: *mut c_void,
        len: usize,
    }

    type Call = unsafe extern "C" fn(c_int, *const Range, c_ulong, *const Range, c_ulong, c_ulong) -> isize;
    unsafe extern "C" {
        fn process_vm_readv(
            pid: c_int,
            here: *const Range,
            heres: c_ulong,
            there: *const Range,
            theres: c_ulong,
            flags: c_ulong,
        ) -> isize;
        fn process_vm_writev(
            pid: c_int,
            here: *const Range,
            heres: c_ulong,
            there: *const Range,
            theres: c_ulong,
            flags: c_ulong,
        ) -> isize;
        fn prctl(option: c_int, ...) -> c_int;
    }

    pub(super) type Copy = unsafe fn(u32, *mut u8, u64, usize) -> io::Result<usize>;

    pub(super) fn admit(pid: u32) {
        // SAFETY: changes nothing but who may look. A system without such a list refuses, and needs none.
        unsafe { prctl(PR_SET_PTRACER, c_ulong::from(pid)) };
    }

    /// # Safety
    /// `here` has `len` writable bytes.
    pub(super) unsafe fn read(pid: u32, here: *mut u8, there: u64, len: usize) -> io::Result<usize> {
        // SAFETY: as promised.
        unsafe { call(process_vm_readv, pid, here, there, len) }
    }

    /// # Safety
    /// `here` has `len` bytes.
    pub(super) unsafe fn write(pid: u32, here: *mut u8, there: u64, len: usize) -> io::Result<usize> {
        // SAFETY: as promised.
        unsafe { call(process_vm_writev, pid, here, there, len) }
    }

    /// # Safety
    /// `here` has `len` bytes that `call` may touch.
    unsafe fn call(call: Call, pid: u32, here: *mut u8, there: u64, len: usize) -> io::Result<usize> {
        let pid = c_int::try_from(pid).map_err(|_| io::ErrorKind::NotFound)?;
        let start = usize::try_from(there).map_err(|_| io::ErrorKind::NotFound)? as *mut c_void;
        let (len, zero) = (len.min(MOST), 0);
        let (here, there) = (Range { start: here.cast(), len }, Range { start, len });
        // SAFETY: one range on either side, which live until the call returns.
        match unsafe { call(pid, &here, 1, &there, 1, zero) } {
            n if n > 0 => Ok(n as usize),
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    use std::io;

    pub(super) type Copy = unsafe fn(u32, *mut u8, u64, usize) -> io::Result<usize>;

    pub(super) fn admit(_: u32) {}

    pub(super) unsafe fn read(_: u32, _: *mut u8, _: u64, _: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(super) unsafe fn write(_: u32, _: *mut u8, _: u64, _: usize) -> io::Result<usize> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
