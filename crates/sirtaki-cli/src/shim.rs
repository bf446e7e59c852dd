//! shim
#![allow(missing_docs, unused, unreachable_pub)]
use sirtaki_comm::{rendezvous::Store, secure::Secret, *};
use std::{net::*, sync::Arc, time::Instant};
pub struct TcpStore;
pub struct TcpStoreServer;
impl TcpStoreServer {
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], 1).into()
    }
}
impl TcpStore {
    pub fn serve(bind: IpAddr, secret: &Secret, tls: bool) -> Result<TcpStoreServer, CommError> {
        Ok(TcpStoreServer)
    }
    pub fn connect(a: SocketAddr, secret: &Secret, tls: bool, deadline: Instant) -> Result<TcpStore, CommError> {
        Ok(TcpStore)
    }
}
impl Store for TcpStore {
    fn set(&self, k: &str, v: &[u8]) -> Result<(), CommError> {
        Ok(())
    }
    fn wait(&self, k: &str, d: Instant) -> Result<Option<Vec<u8>>, CommError> {
        Ok(None)
    }
    fn add(&self, k: &str, a: i64) -> Result<i64, CommError> {
        Ok(0)
    }
}
pub fn connect(s: Arc<dyn Store>, r: usize, n: usize, settings: Settings) -> Result<Box<dyn Communicator>, CommError> {
    Err(CommError::Unavailable { what: "x".into(), reason: "shim".into() })
}
