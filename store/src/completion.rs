//! The answer to a put: a future without any runtime, which a plain thread can wait for as well.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use parking_lot::Mutex;

use crate::error::PutError;

/// Where a message was put. For a batch: where its first message was put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PutResult {
    /// Commit log offset.
    pub physical_offset: i64,
    /// Offset in the queue; 0 for a half message that goes to no queue.
    pub queue_offset: i64,
    /// When it was stored, epoch milliseconds by the broker's clock.
    pub store_timestamp: i64,
    /// Bytes of the record, of all records for a batch.
    pub record_bytes: usize,
    /// Commit log offsets of the other messages of a batch.
    pub other_physical_offsets: Vec<i64>,
}

impl PutResult {
    /// Commit log offset behind the last record.
    #[must_use]
    pub fn end(&self) -> i64 {
        self.physical_offset + i64::try_from(self.record_bytes).expect("records are below 2 GiB")
    }

    /// Commit log offsets of all messages put, one for a single message.
    pub fn physical_offsets(&self) -> impl Iterator<Item = i64> {
        std::iter::once(self.physical_offset).chain(self.other_physical_offsets.iter().copied())
    }
}

#[derive(Debug, Default)]
struct State {
    appended: Option<PutResult>,
    outcome: Option<Result<PutResult, PutError>>,
    waker: Option<Waker>,
}

/// Resolves when the message is stored: written, and under SYNC_FLUSH also flushed.
///
/// Dropping it does not take the message back.
#[derive(Debug)]
#[must_use = "a put is acknowledged only when the future resolves"]
pub struct PutFuture {
    state: Arc<Mutex<State>>,
}

impl PutFuture {
    /// A future and the handle that completes it.
    pub(crate) fn new() -> (Self, Completion) {
        let state = Arc::new(Mutex::new(State::default()));
        (Self { state: Arc::clone(&state) }, Completion { state: Some(state) })
    }

    /// The future of a message that is not put at all.
    pub fn refused(error: PutError) -> Self {
        Self::ready(Err(error))
    }

    /// A future that is complete.
    pub(crate) fn ready(outcome: Result<PutResult, PutError>) -> Self {
        let state = State { outcome: Some(outcome), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Where the message was written, once it is, even while its flush is not over. A broker whose
    /// `syncFlushTimeout` has passed answers FLUSH_DISK_TIMEOUT with this.
    #[must_use]
    pub fn appended(&self) -> Option<PutResult> {
        self.state.lock().appended.clone()
    }

    /// Blocks this thread until the message is stored.
    ///
    /// # Errors
    /// It was not stored.
    pub fn wait(mut self) -> Result<PutResult, PutError> {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut context = Context::from_waker(&waker);
        loop {
            match Pin::new(&mut self).poll(&mut context) {
                Poll::Ready(outcome) => return outcome,
                Poll::Pending => std::thread::park(),
            }
        }
    }
}

impl Future for PutFuture {
    type Output = Result<PutResult, PutError>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.state.lock();
        // The outcome stays, so that polling again is no mistake.
        if let Some(outcome) = &state.outcome {
            return Poll::Ready(outcome.clone());
        }
        state.waker = Some(context.waker().clone());
        Poll::Pending
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Completes a [`PutFuture`]; dropped without doing so it reports [`PutError::Shutdown`].
#[derive(Debug)]
pub(crate) struct Completion {
    state: Option<Arc<Mutex<State>>>,
}

impl Completion {
    pub(crate) fn appended(&self, result: &PutResult) {
        if let Some(state) = &self.state {
            state.lock().appended = Some(result.clone());
        }
    }

    pub(crate) fn complete(mut self, outcome: Result<PutResult, PutError>) {
        self.finish(outcome);
    }

    fn finish(&mut self, outcome: Result<PutResult, PutError>) {
        let Some(state) = self.state.take() else { return };
        let waker = {
            let mut state = state.lock();
            state.outcome = Some(outcome);
            state.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Drop for Completion {
    fn drop(&mut self) {
        self.finish(Err(PutError::Shutdown));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result() -> PutResult {
        PutResult {
            physical_offset: 7,
            queue_offset: 1,
            store_timestamp: 2,
            record_bytes: 91,
            other_physical_offsets: vec![98, 189],
        }
    }

    #[test]
    fn a_thread_waits_for_the_outcome() {
        let (future, completion) = PutFuture::new();
        assert_eq!(future.appended(), None);
        completion.appended(&result());
        assert_eq!(future.appended(), Some(result()));
        let thread = std::thread::spawn(move || future.wait());
        completion.complete(Ok(result()));
        let outcome = thread.join().unwrap().unwrap();
        assert_eq!(outcome.physical_offsets().collect::<Vec<_>>(), [7, 98, 189]);
    }

    #[test]
    fn a_lost_completion_is_an_error() {
        let (future, completion) = PutFuture::new();
        drop(completion);
        assert_eq!(future.wait(), Err(PutError::Shutdown));
        let error = PutError::NotWritable("full".into());
        assert_eq!(PutFuture::ready(Err(error.clone())).wait(), Err(error));
    }
}
