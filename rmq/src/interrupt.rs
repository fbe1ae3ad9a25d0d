//! Being asked to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Waits until someone presses Ctrl-C or sends SIGTERM. Once called, neither ends the process by
/// itself any more.
pub(crate) async fn interrupted() {
    let terminated = async {
        match signal(SignalKind::terminate()) {
            Ok(mut terminated) => drop(terminated.recv().await),
            Err(_) => std::future::pending().await,
        }
    };
    tokio::select! {
        pressed = tokio::signal::ctrl_c() => {
            if pressed.is_err() {
                // Signals cannot be had: then they end the process as ever.
                std::future::pending::<()>().await;
            }
        }
        () = terminated => {}
    }
}
