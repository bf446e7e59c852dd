//! Ports for servers that other programs will start.

use std::{
    io,
    net::{IpAddr, SocketAddr},
    os::fd::OwnedFd,
};

use rustix::net::{
    AddressFamily, SocketFlags, SocketType, bind, getsockname, socket_with, sockopt::set_socket_reuseaddr,
};

/// A port of `address` that the system assigns to no other socket while this one is open, although a program that sets
/// the option to reuse addresses, as servers do, can listen on it.
pub fn keep(address: IpAddr) -> io::Result<(OwnedFd, u16)> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let kept = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    set_socket_reuseaddr(&kept, true)?;
    bind(&kept, &SocketAddr::new(address, 0))?;
    let port = SocketAddr::try_from(getsockname(&kept)?)?.port();
    Ok((kept, port))
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::keep;

    #[test]
    fn a_kept_port_can_be_used_by_a_server() {
        let (_kept, port) = keep(Ipv4Addr::LOCALHOST.into()).unwrap();
        assert!(TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok(), "servers reuse addresses");
    }
}
