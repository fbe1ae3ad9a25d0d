//! Where this broker is, for others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// Where a packet goes that finds out which address leads out of this machine. Nothing is sent.
const FAR_AWAY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);

/// The address that people reach this broker at when the configuration does not say: what the
/// environment says about the pod, else the one by which this machine reaches its name server,
/// else the one by which it reaches the world.
pub(crate) async fn own_address(pod_ip: Option<String>, name_server: Option<&str>) -> IpAddr {
    if let Some(ip) = pod_ip.and_then(|ip| ip.trim().parse().ok()) {
        return ip;
    }
    if let Some(server) = name_server
        && let Some(remote) = resolve(server).await.first()
        && let Some(ip) = source_towards(*remote)
    {
        return ip;
    }
    source_towards(FAR_AWAY).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST))
}

/// The address of this machine that a connection to `remote` would come from.
fn source_towards(remote: SocketAddr) -> Option<IpAddr> {
    let any: IpAddr = if remote.is_ipv4() {
        Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = std::net::UdpSocket::bind(SocketAddr::new(any, 0)).ok()?;
    socket.connect(remote).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified()).then_some(ip)
}

/// All addresses of `host:port`; none when it cannot be resolved.
pub(crate) async fn resolve(host_and_port: &str) -> Vec<SocketAddr> {
    match tokio::net::lookup_host(host_and_port).await {
        Ok(addresses) => addresses.collect(),
        Err(error) => {
            tracing::debug!(name = host_and_port, %error, "cannot resolve");
            Vec::new()
        }
    }
}

/// The address that records and message ids name, for which a name is not enough.
pub(crate) async fn store_host(host: &str, port: u16, own: IpAddr) -> SocketAddr {
    let ip = match host.trim_matches(['[', ']']).parse() {
        Ok(ip) => ip,
        Err(_) => match resolve(&format!("{host}:{port}")).await.first() {
            Some(address) => address.ip(),
            None => {
                tracing::warn!(host, %own, "brokerIP1 has no address yet, ids name another one");
                own
            }
        },
    };
    SocketAddr::new(ip, port)
}

/// `host:port`, with an IPv6 address in brackets.
pub(crate) fn join(host: &str, port: u16) -> String {
    if host.contains(':') && !host.starts_with('[') {
        format!("[{host}]:{port}")
    } else {
        format!("{host}:{port}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn addresses_are_found() {
        let pod: IpAddr = "10.1.2.3".parse().unwrap();
        assert_eq!(own_address(Some("10.1.2.3".into()), None).await, pod);
        let near = own_address(None, Some("127.0.0.1:9876")).await;
        assert_eq!(near, IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(store_host("10.0.0.1", 5, pod).await.to_string(), "10.0.0.1:5");
        assert_eq!(store_host("[::1]", 5, pod).await.to_string(), "[::1]:5");
        assert_eq!(store_host("no such host", 5, pod).await.to_string(), "10.1.2.3:5");
        assert_eq!(join("b-0.b.mq.svc", 5), "b-0.b.mq.svc:5");
        assert_eq!(join("fd00::1", 5), "[fd00::1]:5");
    }
}
