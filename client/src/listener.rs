//! What a user does with messages.

use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use protocol::body::MessageQueue;
use protocol::message::MessageExt;

/// Messages for a listener. All are of one queue, in the order of their offsets.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The queue they were read from: of a message that was retried, of the retry topic.
    pub queue: MessageQueue,
    /// The messages, at least one.
    pub messages: Vec<Arc<MessageExt>>,
}

/// What a concurrent listener says of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConcurrentStatus {
    /// Done with.
    Success,
    /// To be delivered again later. Broadcasting consumers get it only once.
    Retry {
        /// 0: later each time, by the broker's table. 1 to 18: by this level of the table.
        /// Negative: never, to the dead letters.
        delay_level: i32,
    },
}

/// What an orderly listener says of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OrderlyStatus {
    /// Done with.
    Success,
    /// To be delivered again after this time, during which the queue stands still.
    Suspend(Duration),
}

type Call<S> = Box<dyn Fn(Delivery) -> Pin<Box<dyn Future<Output = S> + Send>> + Send + Sync>;

/// What a user does with messages. A panic in it, and taking longer than is allowed, count as a
/// failure to be tried again.
pub enum Listener {
    /// Messages of one queue may be delivered at once and out of order.
    Concurrent(Call<ConcurrentStatus>),
    /// Messages of one queue are delivered one after the other.
    Orderly(Call<OrderlyStatus>),
}

impl Listener {
    /// A concurrent listener.
    pub fn concurrent<F, R>(listener: F) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output = ConcurrentStatus> + Send + 'static,
    {
        Self::Concurrent(Box::new(move |delivery| Box::pin(listener(delivery))))
    }

    /// An orderly listener.
    pub fn orderly<F, R>(listener: F) -> Self
    where
        F: Fn(Delivery) -> R + Send + Sync + 'static,
        R: Future<Output = OrderlyStatus> + Send + 'static,
    {
        Self::Orderly(Box::new(move |delivery| Box::pin(listener(delivery))))
    }

    pub(crate) fn is_orderly(&self) -> bool {
        matches!(self, Self::Orderly(_))
    }
}

/// Why a listener gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoStatus {
    Panicked,
    TimedOut,
}

/// Runs a listener. When its time is over it is dropped where it waits.
pub(crate) async fn run<S>(
    call: &Call<S>,
    delivery: Delivery,
    timeout: Duration,
) -> Result<S, NoStatus> {
    let guarded = AssertUnwindSafe(async move { call(delivery).await }).catch_unwind();
    match tokio::time::timeout(timeout, guarded).await {
        Ok(Ok(status)) => Ok(status),
        Ok(Err(_)) => Err(NoStatus::Panicked),
        Err(_) => Err(NoStatus::TimedOut),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_listener_that_panics_or_hangs_is_noticed() {
        let run = |listener: Listener| async move {
            let Listener::Concurrent(call) = listener else { unreachable!("not orderly") };
            let delivery = Delivery { queue: MessageQueue::default(), messages: Vec::new() };
            super::run(&call, delivery, Duration::from_secs(1)).await
        };
        let success = Listener::concurrent(|_| async { ConcurrentStatus::Success });
        assert_eq!(run(success).await, Ok(ConcurrentStatus::Success));
        let panics = Listener::concurrent(|delivery| async move {
            assert!(!delivery.messages.is_empty(), "a panic that the test wants");
            ConcurrentStatus::Success
        });
        assert_eq!(run(panics).await, Err(NoStatus::Panicked));
        let hangs = Listener::concurrent(|_| std::future::pending());
        assert_eq!(run(hangs).await, Err(NoStatus::TimedOut));
    }
}
