//! The broker as a whole: its settings, its figures, its disk.

use std::collections::BTreeMap;
use std::sync::Arc;

use daemon::properties;
use protocol::body::KvTable;
use protocol::command::{CURRENT_VERSION, RemotingCommand};
use protocol::header::admin::GetBrokerConfigResponseHeader;
use protocol::json;

use crate::broker::Broker;
use crate::clock::now_ms;
use crate::processor::{success, with_json};
use crate::refusal::{Answer, Refusal};
use crate::throughput::Total;

pub(crate) fn config(broker: &Broker) -> Answer {
    let version = json::to_vec(&broker.topics.data_version())?;
    let header =
        GetBrokerConfigResponseHeader { version: String::from_utf8_lossy(&version).into_owned() };
    Ok(RemotingCommand::success_with(&header).with_body(broker.config.print()).into())
}

pub(crate) async fn update_config(broker: &Arc<Broker>, request: &RemotingCommand) -> Answer {
    if let Ok(entries) = properties::parse(&request.body) {
        let settings = broker.settings();
        let mut keys = entries.iter().map(|entry| &entry.key);
        if let Some(key) = keys.find(|key| settings.is_blacklisted(key)) {
            return Err(Refusal::forbidden(format!("Can not update config in black list: {key}")));
        }
    }
    let updated = broker.config.update(&request.body);
    // Not written back: the file belongs to whoever wrote it.
    let changes = updated.map_err(|errors| Refusal::error(errors.to_string()))?;
    for change in &changes {
        tracing::info!(key = change.key, from = change.from, to = change.to, "setting changed");
    }
    if changes.iter().any(|change| change.key == "brokerPermission") {
        broker.publish_all().await;
    }
    success()
}

/// Looks at once for files whose time has come.
pub(crate) async fn clean(broker: &Arc<Broker>) -> Answer {
    broker.blocking(|broker| broker.store.clean()).await?;
    success()
}

pub(crate) async fn runtime_info(broker: &Arc<Broker>) -> Answer {
    let table = broker.blocking(|broker| Ok::<_, Refusal>(figures(broker))).await?;
    with_json(&KvTable { table })
}

/// The figures that Apache's tools read, as far as there is such a thing here.
fn figures(broker: &Broker) -> BTreeMap<String, String> {
    let mut table = BTreeMap::new();
    let mut put = |name: &str, value: String| {
        table.insert(name.to_owned(), value);
    };
    let throughput = &broker.throughput;
    let midnights = throughput.midnights();
    let total = |total| throughput.total(total).to_string();
    put("brokerActive", "true".to_owned());
    put("brokerVersion", CURRENT_VERSION.to_string());
    put("brokerVersionDesc", format!("rocketmq-rs-{}", daemon::build_info::VERSION));
    put("bootTimestamp", broker.started_ms.to_string());
    put("runtime", run_time(now_ms() - broker.started_ms));
    put("msgPutTotalYesterdayMorning", midnights.put_yesterday.to_string());
    put("msgPutTotalTodayMorning", midnights.put_today.to_string());
    put("msgPutTotalTodayNow", total(Total::Put));
    put("msgGetTotalYesterdayMorning", midnights.get_yesterday.to_string());
    put("msgGetTotalTodayMorning", midnights.get_today.to_string());
    put("msgGetTotalTodayNow", total(Total::Get));
    put("putMessageTimesTotal", total(Total::Put));
    put("putMessageSizeTotal", total(Total::PutBytes));
    let average =
        throughput.total(Total::PutBytes) as f64 / throughput.total(Total::Put).max(1) as f64;
    put("putMessageAverageSize", format!("{average:.1}"));
    put("putTps", throughput.rates(Total::Put));
    put("getFoundTps", throughput.rates(Total::GetFound));
    put("getMissTps", throughput.rates(Total::GetMiss));
    put("getTransferedTps", throughput.rates(Total::Get));
    put("getTransferredTps", throughput.rates(Total::Get));
    put("startAcceptSendRequestTimeStamp", broker.settings().start_accept_send_request.to_string());
    for (level, offset) in broker.schedule.offsets() {
        let end = broker.store.max_offset(protocol::topic_name::SCHEDULE_TOPIC, level - 1);
        put(&format!("scheduleMessageOffset_{level}"), format!("{offset},{end}"));
    }
    put("pullHold", broker.hold.held().to_string());
    store_figures(broker, &mut put);
    table
}

fn store_figures(broker: &Broker, put: &mut impl FnMut(&str, String)) {
    let stats = broker.store.stats();
    put("commitLogMinOffset", stats.log_min_offset.to_string());
    put("commitLogMaxOffset", stats.log_max_offset.to_string());
    let behind = (stats.log_max_offset - stats.log_dispatched_offset).max(0);
    put("dispatchBehindBytes", behind.to_string());
    let unflushed = (stats.log_max_offset - stats.log_flushed_offset).max(0);
    put("remainHowManyDataToFlush", format!("{unflushed} B"));
    put("putMessageFailedTimes", stats.metrics.put_refused.to_string());
    // There are no queues in which requests wait, and Apache's tools print "null" without these.
    put("sendThreadPoolQueueSize", stats.pending_messages.to_string());
    for queue in ["pull", "ack", "query", "litePull"] {
        put(&format!("{queue}ThreadPoolQueueSize"), "0".to_owned());
    }
    for queue in ["send", "pull", "ack", "query", "litePull"] {
        put(&format!("{queue}ThreadPoolQueueHeadWaitTimeMills"), "0".to_owned());
    }
    put("pageCacheLockTimeMills", "0".to_owned());
    put("putPendingBytes", stats.pending_bytes.to_string());
    put("putPendingMessages", stats.pending_messages.to_string());
    put("earliestMessageTimeStamp", broker.earliest_message_ms().unwrap_or(-1).to_string());
    if let Ok(space) = broker.store.disk_space() {
        let total = space.used + space.available;
        let ratio = space.used as f64 / total.max(1) as f64;
        put("commitLogDiskRatio", format!("{ratio:.4}"));
        put("consumeQueueDiskRatio", format!("{ratio:.4}"));
        let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
        let (all, free) = (gib(total), gib(space.available));
        put("commitLogDirCapacity", format!("Total : {all:.1} GiB, Free : {free:.1} GiB."));
    }
}

/// As Apache's broker prints it.
fn run_time(milliseconds: i64) -> String {
    let seconds = milliseconds.max(0) / 1_000;
    let (days, hours) = (seconds / 86_400, seconds / 3_600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    format!("[ {days} days, {hours} hours, {minutes} minutes, {seconds} seconds ]")
}
