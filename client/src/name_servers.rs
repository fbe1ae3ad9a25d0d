//! The name servers of a client: any of them will do.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use protocol::command::RemotingCommand;
use protocol::response_code::ResponseCode;
use remoting::{Processor, RemotingClient, RemotingError};
use tokio::time::Instant;

use crate::ClientError;

/// The list, and which one is asked at present.
pub(crate) struct NameServers {
    addrs: Vec<String>,
    current: AtomicUsize,
}

impl NameServers {
    /// Reads `host:port`s joined by `;` or `,`. The first one to be asked is random, so that
    /// clients spread.
    pub(crate) fn parse(text: &str) -> Result<Self, ClientError> {
        let mut addrs = Vec::new();
        for addr in text.split([';', ',']).map(str::trim).filter(|addr| !addr.is_empty()) {
            let port = addr.rsplit_once(':').filter(|(host, _)| !host.is_empty());
            if port.is_none_or(|(_, port)| port.parse::<u16>().is_err()) {
                return Err(ClientError::NameServerAddress { addr: addr.to_owned() });
            }
            addrs.push(addr.to_owned());
        }
        if addrs.is_empty() {
            return Err(ClientError::NoNameServer);
        }
        let current = AtomicUsize::new(rand::random_range(0..addrs.len()));
        Ok(Self { addrs, current })
    }

    pub(crate) fn addrs(&self) -> &[String] {
        &self.addrs
    }

    /// Asks one after the other until one answers, and not that it is not ready, as one that has
    /// just started does. Returns who answered.
    pub(crate) async fn invoke<P: Processor>(
        &self,
        remoting: &RemotingClient<P>,
        request: &RemotingCommand,
        timeout: Duration,
    ) -> Result<(String, RemotingCommand), ClientError> {
        let deadline = Instant::now() + timeout;
        let mut failure = None;
        let mut not_ready = None;
        for turn in 0..self.addrs.len() {
            let at = self.current.load(Ordering::Relaxed);
            let Some(addr) = self.addrs.get(at % self.addrs.len()) else { break };
            // The others must get their turn even if this one hangs.
            let left = deadline.saturating_duration_since(Instant::now());
            let turns = u32::try_from(self.addrs.len() - turn).unwrap_or(u32::MAX);
            match remoting.invoke(addr, request.clone(), left / turns).await {
                Ok(response) if response.response_code() == ResponseCode::SYSTEM_ERROR => {
                    tracing::debug!(addr, remark = ?response.remark, "a name server is not ready");
                    not_ready.get_or_insert((addr.clone(), response));
                }
                Ok(response) => return Ok((addr.clone(), response)),
                Err(error) => {
                    tracing::debug!(%error, "a name server did not answer");
                    failure = Some(error);
                }
            }
            // Whoever fails first moves on; others that failed at the same one follow.
            let (next, order) = (at.wrapping_add(1), Ordering::Relaxed);
            let _ = self.current.compare_exchange(at, next, order, order);
        }
        if let Some(answer) = not_ready {
            return Ok(answer);
        }
        let addrs = self.addrs.join(";");
        let source = failure.unwrap_or(RemotingError::Timeout { addr: addrs.clone(), timeout });
        Err(ClientError::NameServerUnreachable { addrs, source })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_split_and_checked() {
        let check = |text: &str, expected: &[&str]| {
            let servers = NameServers::parse(text).unwrap();
            assert_eq!(servers.addrs, expected);
        };
        check("a:1", &["a:1"]);
        check(" a:1; b.c:2 ,[::1]:3;", &["a:1", "b.c:2", "[::1]:3"]);
        assert!(matches!(NameServers::parse(" ; "), Err(ClientError::NoNameServer)));
        for wrong in ["a", ":1", "a:x", "a:70000"] {
            let error = NameServers::parse(wrong).err();
            assert!(
                matches!(&error, Some(ClientError::NameServerAddress { addr }) if addr == wrong),
                "{error:?}"
            );
        }
    }
}
