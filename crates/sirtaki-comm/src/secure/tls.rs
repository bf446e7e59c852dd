//! Encryption between processes, TLS 1.3 only.
//!
//! Every process makes a throw-away self-signed certificate, and nobody checks whose it is: there is no authority to
//! ask, and files with certificates would be one more thing to hand out. What authenticates is the job's secret. The
//! [handshake](super::handshake) runs inside TLS and mixes in the exporter value of the TLS session (RFC 8446, 7.5),
//! which only the two ends of the same session can compute. An attacker in the middle holds two sessions with two
//! different values, so each end's proof fails at the other, and the connection is refused before anything is said.

use std::{io, sync::Arc};

use rustls::{
    ClientConfig, ClientConnection, Connection, DigitallySignedStruct, Error, ServerConfig, ServerConnection,
    SignatureScheme,
    client::{
        Resumption,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, ring, verify_tls13_signature},
    pki_types::{CertificateDer, PrivatePkcs8KeyDer, ServerName, UnixTime},
    version::TLS13,
};

use crate::CommError;

/// The exporter's label; part of the protocol.
const EXPORTER: &[u8] = b"EXPERIMENTAL-sirtaki-channel-binding";

/// The name in every certificate; it identifies nobody.
const NAME: &str = "sirtaki.invalid";

/// This process's half of all its encrypted connections.
#[derive(Clone)]
pub struct Tls {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls(…)")
    }
}

impl Tls {
    /// A fresh key and certificate, which live as long as this value and its clones.
    pub fn new() -> Result<Self, CommError> {
        let broken = |error: &dyn std::fmt::Display| CommError::Unavailable {
            what: "TLS".into(),
            reason: format!("this process cannot set it up: {error}"),
        };
        let own = rcgen::generate_simple_self_signed(vec![NAME.to_string()]).map_err(|e| broken(&e))?;
        let key = PrivatePkcs8KeyDer::from(own.signing_key.serialize_der());
        let provider = Arc::new(ring::default_provider());
        let mut server = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| broken(&e))?
            .with_no_client_auth()
            .with_single_cert(vec![own.cert.der().clone()], key.into())
            .map_err(|e| broken(&e))?;
        server.send_tls13_tickets = 0;
        let mut client = ClientConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(&[&TLS13])
            .map_err(|e| broken(&e))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(AnyCertificate(provider)))
            .with_no_client_auth();
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        Ok(Self { client: Arc::new(client), server: Arc::new(server) })
    }

    pub(super) fn client(&self) -> io::Result<Connection> {
        let name = ServerName::try_from(NAME).map_err(io::Error::other)?;
        Ok(ClientConnection::new(self.client.clone(), name).map_err(io::Error::other)?.into())
    }

    pub(super) fn server(&self) -> io::Result<Connection> {
        Ok(ServerConnection::new(self.server.clone()).map_err(io::Error::other)?.into())
    }
}

/// The value that only the two ends of this session know.
pub(super) fn binding(connection: &Connection) -> io::Result<[u8; 32]> {
    connection.export_keying_material([0; 32], EXPORTER, None).map_err(io::Error::other)
}

/// Accepts every certificate but still checks that the peer has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        Err(Error::General("TLS 1.2 is not spoken here".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
