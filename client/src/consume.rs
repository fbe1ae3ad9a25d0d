//! Handing messages to listeners.

use std::sync::Arc;
use std::time::Duration;

use protocol::heartbeat::MessageModel;
use protocol::message::MessageExt;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::listener::{self, NoStatus};
use crate::process_queue::ProcessQueue;
use crate::push_consumer::Core;
use crate::{ConcurrentStatus, Delivery, Listener, OrderlyStatus};

/// How often an orderly queue without lock is looked at.
const LOCK_PAUSE: Duration = Duration::from_millis(100);
/// Pause of an orderly queue after a listener failed without saying how long to wait.
const SUSPEND: Duration = Duration::from_secs(1);
/// Bounds of the pause that an orderly listener asks for, as in Java.
const SUSPEND_MIN: Duration = Duration::from_millis(10);
const SUSPEND_MAX: Duration = Duration::from_secs(30);
/// Delay level of a message whose listener took too long.
const TIMED_OUT_LEVEL: i32 = 3;

/// Messages that a listener is to have, with the right to run.
struct Turn {
    messages: Vec<Arc<MessageExt>>,
    permit: OwnedSemaphorePermit,
}

/// Hands out the messages of a queue until it is stopped.
pub(crate) async fn run(core: Arc<Core>, queue: Arc<ProcessQueue>) {
    match &core.listener {
        Listener::Concurrent(_) => {
            while let Some(turn) = next_turn(&core, &queue).await {
                let (core, queue) = (Arc::clone(&core), Arc::clone(&queue));
                let tasks = core.tasks.clone();
                tasks.spawn(async move { consume(&core, &queue, turn).await });
            }
        }
        Listener::Orderly(_) => {
            while let Some(turn) = next_turn(&core, &queue).await {
                consume_in_order(&core, &queue, turn).await;
            }
        }
    }
}

/// The next messages, once there is a free place among the listeners; `None` at the end.
async fn next_turn(core: &Core, queue: &ProcessQueue) -> Option<Turn> {
    let next = async {
        let permit = Arc::clone(&core.permits).acquire_owned().await;
        permit.expect("the semaphore is never closed")
    };
    let has_lock = async {
        while core.needs_locks() && !queue.is_locked() {
            tokio::time::sleep(LOCK_PAUSE).await;
        }
    };
    // A place must not be held while there is nothing to do, and messages must not be taken without
    // a place: they would count as running.
    let ready = async {
        queue.wait_for_message().await;
        has_lock.await;
        next.await
    };
    let permit = tokio::select! {
        permit = ready => permit,
        () = queue.stop.cancelled() => return None,
    };
    let messages = queue.take_now(core.config.batch_max);
    if messages.is_empty() { None } else { Some(Turn { messages, permit }) }
}

fn offsets(messages: &[Arc<MessageExt>]) -> Vec<i64> {
    messages.iter().map(|message| message.queue_offset).collect()
}

/// One delivery to a concurrent listener.
async fn consume(core: &Arc<Core>, queue: &Arc<ProcessQueue>, turn: Turn) {
    let Listener::Concurrent(call) = &core.listener else { return };
    let Turn { messages, permit } = turn;
    let began = Instant::now();
    let delivery = Delivery { queue: queue.queue.clone(), messages: messages.clone() };
    let status = listener::run(call, delivery, core.config.consume_timeout).await;
    drop(permit);
    let succeeded = status == Ok(ConcurrentStatus::Success);
    core.totals.consumed(&queue.queue.topic, messages.len(), began.elapsed(), succeeded);
    let delay_level = match status {
        Ok(ConcurrentStatus::Success) => {
            queue.done(offsets(&messages));
            return core.commit(queue);
        }
        Ok(ConcurrentStatus::Retry { delay_level }) => delay_level,
        Err(no_status) => {
            let (group, topic) = (&core.config.group, &queue.queue.topic);
            tracing::error!(group, topic, ?no_status, "a listener failed");
            if no_status == NoStatus::TimedOut { TIMED_OUT_LEVEL } else { 0 }
        }
    };
    let left = retry(core, queue, messages, delay_level).await;
    core.commit(queue);
    if !left.is_empty() {
        let stopped = queue.stop.cancelled();
        // What cannot be sent back is delivered again from here.
        let _ = tokio::time::timeout(core.config.local_retry_pause, stopped).await;
        let again = left.into_iter().map(|message| consumed_again(&message));
        queue.put_back(again.collect());
    }
}

/// Sends messages back and strikes them off. Returns those that could not be sent back.
async fn retry(
    core: &Core,
    queue: &ProcessQueue,
    messages: Vec<Arc<MessageExt>>,
    delay_level: i32,
) -> Vec<Arc<MessageExt>> {
    if core.config.message_model == MessageModel::Broadcasting {
        let (group, topic) = (&core.config.group, &queue.queue.topic);
        let count = messages.len();
        tracing::warn!(
            group,
            topic,
            count,
            "messages that failed are dropped, as broadcast ones are"
        );
        queue.done(offsets(&messages));
        return Vec::new();
    }
    let mut left = Vec::new();
    for message in messages {
        match core.send_back(&message, &queue.queue.broker_name, delay_level).await {
            Ok(()) => queue.done([message.queue_offset]),
            Err(error) => {
                let (topic, offset) = (&message.topic, message.queue_offset);
                tracing::error!(topic, offset, %error, "a message was not sent back");
                left.push(message);
            }
        }
    }
    left
}

fn consumed_again(message: &Arc<MessageExt>) -> Arc<MessageExt> {
    let mut message = MessageExt::clone(message);
    message.reconsume_times = message.reconsume_times.saturating_add(1);
    Arc::new(message)
}

/// One delivery to an orderly listener. The queue waits for its end.
async fn consume_in_order(core: &Arc<Core>, queue: &Arc<ProcessQueue>, turn: Turn) {
    let Listener::Orderly(call) = &core.listener else { return };
    let Turn { messages, permit } = turn;
    let began = Instant::now();
    let delivery = Delivery { queue: queue.queue.clone(), messages: messages.clone() };
    let status = listener::run(call, delivery, core.config.consume_timeout).await;
    drop(permit);
    let succeeded = status == Ok(OrderlyStatus::Success);
    core.totals.consumed(&queue.queue.topic, messages.len(), began.elapsed(), succeeded);
    let pause = match status {
        Ok(OrderlyStatus::Success) => {
            queue.done(offsets(&messages));
            return core.commit(queue);
        }
        Ok(OrderlyStatus::Suspend(pause)) => pause.clamp(SUSPEND_MIN, SUSPEND_MAX),
        Err(no_status) => {
            let (group, topic) = (&core.config.group, &queue.queue.topic);
            tracing::error!(group, topic, ?no_status, "a listener failed");
            SUSPEND
        }
    };
    let mut again = Vec::new();
    for message in messages {
        if message.reconsume_times < core.max_reconsume_times() {
            again.push(consumed_again(&message));
        } else if let Err(error) = core.send_copy(&message, -1).await {
            let (topic, offset) = (&message.topic, message.queue_offset);
            tracing::error!(topic, offset, %error, "a message did not get to the dead letters");
            again.push(message);
        } else {
            queue.done([message.queue_offset]);
        }
    }
    core.commit(queue);
    let any_again = !again.is_empty();
    queue.put_back(again);
    if any_again {
        let _ = tokio::time::timeout(pause, queue.stop.cancelled()).await;
    }
}
