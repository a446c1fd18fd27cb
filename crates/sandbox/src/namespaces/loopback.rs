//! Enables the loopback interface of a new network namespace, which is its only one.

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use crate::Error;

const LOOPBACK: i32 = 1;
/// Of linux/netlink.h, linux/rtnetlink.h and linux/if.h.
const RTM_NEWLINK: u16 = 16;
const REQUEST_AND_ACKNOWLEDGE: u16 = 1 | 4;
const IFF_UP: u32 = 1;
const LENGTH: u32 = 32;
/// Offset of the error number in an acknowledgement.
const ERROR: usize = 16;

pub(super) fn enable() -> Result<(), Error> {
    request().map_err(Error::system("the loopback interface"))
}

fn request() -> Result<(), Errno> {
    let socket =
        rustix::net::socket_with(AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    rustix::net::send(&socket, &message(), SendFlags::empty())?;
    let mut answer = [0; 64];
    let (_, length) = rustix::net::recv(&socket, &mut answer, RecvFlags::empty())?;
    let code = answer.get(ERROR..ERROR + 4).filter(|_| length >= ERROR + 4);
    let code =
        code.and_then(|code| code.try_into().ok()).map_or(Errno::IO.raw_os_error(), i32::from_ne_bytes);
    if code == 0 { Ok(()) } else { Err(Errno::from_raw_os_error(code.abs())) }
}

/// `struct nlmsghdr` and `struct ifinfomsg`.
fn message() -> Vec<u8> {
    let header =
        [&LENGTH.to_ne_bytes()[..], &RTM_NEWLINK.to_ne_bytes(), &REQUEST_AND_ACKNOWLEDGE.to_ne_bytes()];
    let numbers = [&1u32.to_ne_bytes()[..], &0u32.to_ne_bytes()];
    let interface = [&[0; 4][..], &LOOPBACK.to_ne_bytes(), &IFF_UP.to_ne_bytes(), &IFF_UP.to_ne_bytes()];
    [header.concat(), numbers.concat(), interface.concat()].concat()
}
