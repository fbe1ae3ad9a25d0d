//! Asks a server whether it is ready, as Kubernetes' readiness probe does.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

/// A server has this long to answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(1);
/// Bytes of an answer that are read.
const ANSWER_SIZE_MAX: u64 = 4096;

/// `Err` says why it is not ready.
pub(super) async fn ready(address: SocketAddr) -> Result<(), String> {
    match timeout(ANSWER_TIMEOUT, ask(address)).await {
        Ok(Ok(answer)) => judge(&answer),
        Ok(Err(error)) => Err(format!("its health port {} says nothing: {error}", address.port())),
        Err(_) => Err(format!("its health port {} does not answer", address.port())),
    }
}

async fn ask(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(b"GET /readyz HTTP/1.0\r\nhost: localhost\r\n\r\n").await?;
    let mut answer = Vec::new();
    stream.take(ANSWER_SIZE_MAX).read_to_end(&mut answer).await?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn judge(answer: &str) -> Result<(), String> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let status = head.split_ascii_whitespace().nth(1).unwrap_or_default();
    if status == "200" {
        return Ok(());
    }
    let failed: Vec<_> = body.lines().filter(|line| line.contains(": not ok")).collect();
    if failed.is_empty() {
        return Err(format!("it answers \"{}\"", head.lines().next().unwrap_or_default()));
    }
    Err(failed.join(", "))
}

/// Whether a port could be listened on now.
pub(super) async fn is_free(port: u16) -> bool {
    TcpListener::bind(("127.0.0.1", port)).await.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        assert_eq!(judge("HTTP/1.0 200 OK\r\na: b\r\n\r\nstore: ok\n"), Ok(()));
        assert_eq!(
            judge("HTTP/1.1 503 x\r\n\r\nstore: ok\nname server: not ok: no answer\n"),
            Err("name server: not ok: no answer".to_owned())
        );
        assert_eq!(
            judge("HTTP/1.1 404 Not Found\r\n\r\n"),
            Err("it answers \"HTTP/1.1 404 Not Found\"".to_owned())
        );
        assert_eq!(judge(""), Err("it answers \"\"".to_owned()));
    }

    #[tokio::test]
    async fn nobody_listens() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let address = listener.local_addr().expect("an address");
        assert!(!is_free(address.port()).await);
        drop(listener);
        let error = ready(address).await.expect_err("closed");
        assert!(error.contains("says nothing"), "{error}");
        assert!(is_free(address.port()).await);
    }
}
