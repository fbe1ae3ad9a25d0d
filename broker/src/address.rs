//! Where this broker is, for others.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// Where a packet goes that finds out which address leads out of this machine. Nothing is sent.
const FAR_AWAY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 9);
/// How long a broker that starts waits for its name to lead to itself.
const NAME_TIMEOUT: Duration = Duration::from_secs(10);
/// How often it looks.
const NAME_RETRY: Duration = Duration::from_millis(250);

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
///
/// Waits until the name is known and is not that of an earlier pod: a client that is told of a
/// broker too early remembers for some seconds that there is nobody of that name. A name that stays
/// another one's after [`NAME_TIMEOUT`] is taken for one that leads here from outside.
pub(crate) async fn store_host(host: &str, port: u16, own: IpAddr) -> SocketAddr {
    if let Ok(ip) = host.trim_matches(['[', ']']).parse() {
        return SocketAddr::new(ip, port);
    }
    let name = format!("{host}:{port}");
    let give_up = Instant::now() + NAME_TIMEOUT;
    loop {
        let next = Instant::now() + NAME_RETRY;
        let found = resolve(&name).await;
        if found.iter().any(|address| address.ip() == own) {
            return SocketAddr::new(own, port);
        }
        if next > give_up {
            let ip = found.first().map_or(own, SocketAddr::ip);
            tracing::warn!(host, %own, %ip, "brokerIP1 is not the name of this machine's address");
            return SocketAddr::new(ip, port);
        }
        sleep_until(next).await;
    }
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

    #[tokio::test(start_paused = true)]
    async fn addresses_are_found() {
        let pod: IpAddr = "10.1.2.3".parse().unwrap();
        assert_eq!(own_address(Some("10.1.2.3".into()), None).await, pod);
        let near = own_address(None, Some("127.0.0.1:9876")).await;
        assert_eq!(near, IpAddr::V4(Ipv4Addr::LOCALHOST));
        assert_eq!(store_host("10.0.0.1", 5, pod).await.to_string(), "10.0.0.1:5");
        assert_eq!(store_host("[::1]", 5, pod).await.to_string(), "[::1]:5");
        let begin = Instant::now();
        let near = own_address(Some("127.0.0.1".into()), None).await;
        assert_eq!(store_host("localhost", 5, near).await.to_string(), "127.0.0.1:5");
        assert!(begin.elapsed() < NAME_RETRY, "its own name was waited for");
        assert_eq!(store_host("no such host", 5, pod).await.to_string(), "10.1.2.3:5");
        assert!(begin.elapsed() > NAME_TIMEOUT - NAME_RETRY, "no time for the name to come");
        assert_eq!(join("b-0.b.mq.svc", 5), "b-0.b.mq.svc:5");
        assert_eq!(join("fd00::1", 5), "[fd00::1]:5");
    }
}
