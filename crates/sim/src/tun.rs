//! Opens TUN devices in the network namespace of the calling thread.

use crate::Error;
use nix::libc;
use std::{
    fs::{File, OpenOptions},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
};

/// Creates the TUN device `name` and returns its file: each read or write transfers one IP packet
/// and does not block. Closing the file removes the device.
///
/// With `offload`, a packet may be a TCP segment of up to 64 KiB. Each packet begins with a header
/// of [`OFFLOAD_HEADER_BYTES`], which another such device accepts as it is.
pub(crate) fn open(name: &str, offload: bool) -> Result<File, Error> {
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(TUN_CLONE)
        .map_err(|e| Error::io(format!("open {TUN_CLONE}"), e))?;
    let request = InterfaceRequest::new(name, offload);
    let made = attach(file.as_raw_fd(), &request);
    let set = made.and_then(|()| if offload { set_offload(file.as_raw_fd()) } else { Ok(()) });
    set.map_err(|e| Error::io(format!("make the TUN device {name}"), e))?;
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
    fn new(name: &str, offload: bool) -> Self {
        assert!(name.len() < libc::IFNAMSIZ, "an interface name has at most 15 bytes");
        let header = if offload { libc::IFF_VNET_HDR } else { 0 };
        let mut request = Self {
            name: [0; _],
            // Without IFF_NO_PI, each packet would have a header of four bytes.
            flags: (libc::IFF_TUN | libc::IFF_NO_PI | header) as libc::c_short,
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

/// Lets the kernel pass segments of several packets, with checksums still to be computed.
#[expect(unsafe_code, reason = "no safe wrapper of TUNSETOFFLOAD exists among the dependencies")]
fn set_offload(tun: libc::c_int) -> nix::Result<()> {
    mod raw {
        nix::ioctl_write_int_bad!(tun_set_offload, nix::libc::TUNSETOFFLOAD);
    }
    let features = libc::TUN_F_CSUM | libc::TUN_F_TSO4 | libc::TUN_F_TSO6;
    // SAFETY: the descriptor is open for the whole call, and the argument is a number.
    unsafe { raw::tun_set_offload(tun, features as libc::c_int) }.map(drop)
}

/// Size of `struct virtio_net_hdr`, the header of each packet with `IFF_VNET_HDR`
/// (linux/virtio_net.h).
pub(crate) const OFFLOAD_HEADER_BYTES: usize = 10;

const _: () = assert!(size_of::<InterfaceRequest>() == size_of::<libc::ifreq>());

const TUN_CLONE: &str = "/dev/net/tun";
