//! Opens TUN devices in the network namespace of the calling thread.

use crate::Error;
use nix::libc;
use std::{
    fs::{File, OpenOptions},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
};

/// Creates the TUN device `name` and returns its file: each read or write transfers one IP packet
/// and does not block. Closing the file removes the device.
pub(crate) fn open(name: &str) -> Result<File, Error> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(TUN_CLONE)
        .map_err(|e| Error::io(format!("open {TUN_CLONE}"), e))?;
    let request = InterfaceRequest::new(name);
    attach(file.as_raw_fd(), &request).map_err(|e| Error::io(format!("make the TUN device {name}"), e))?;
    Ok(file)
}

/// `struct ifreq` as TUNSETIFF reads it: a name, flags, and padding for the kernel's union.
#[repr(C)]
struct InterfaceRequest {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    padding: [u8; size_of::<libc::ifreq>() - libc::IFNAMSIZ - size_of::<libc::c_short>()],
}

impl InterfaceRequest {
    /// Creates a request for a device with this name.
    ///
    /// # Panics
    /// If the name is longer than 15 bytes; all names come from this crate.
    fn new(name: &str) -> Self {
        assert!(name.len() < libc::IFNAMSIZ, "an interface name has at most 15 bytes");
        let mut request = Self {
            name: [0; _],
            // Without IFF_NO_PI, each packet would have a header of four bytes.
            flags: (libc::IFF_TUN | libc::IFF_NO_PI) as libc::c_short,
            padding: [0; _],
        };
        request.name[..name.len()].copy_from_slice(name.as_bytes());
        request
    }
}

#[expect(unsafe_code, reason = "no safe wrapper of TUNSETIFF exists among the dependencies")]
fn attach(tun: libc::c_int, request: &InterfaceRequest) -> nix::Result<()> {
    mod raw {
        nix::ioctl_write_ptr_bad!(tun_set_interface, nix::libc::TUNSETIFF, super::InterfaceRequest);
    }
    // SAFETY: the descriptor is open for the whole call, and the request is a live object of the
    // size and layout of `struct ifreq` (checked below). The kernel copies the request before the
    // call returns.
    unsafe { raw::tun_set_interface(tun, request) }.map(drop)
}

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

const TUN_CLONE: &str = "/dev/net/tun";
