//! Sends the clients of a former master to the new one, where one address leads to whoever is
//! master: they stay connected to this broker until somebody tells them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::command::RemotingCommand;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use remoting::{Channel, Response, Server};
use tokio::time::{sleep, timeout};

use crate::broker::Broker;
use crate::dispatch::BrokerProcessor;

/// The address leads to the new master after this time; until then late sends are forwarded.
const FORWARD_TIME: Duration = Duration::from_secs(2);
/// Clients have this long to go by themselves. Java's client waits 3 s for an answer that was on
/// its way when the connection was closed.
const GO_TIME: Duration = Duration::from_secs(1);
/// Another replica has this long to take the mastership.
const RESIGN_LIMIT: Duration = Duration::from_secs(10);
/// Last version whose clients do not know GO_AWAY (`V5_1_4`). Their sends are forwarded.
const LAST_VERSION_WITHOUT_GO_AWAY: i32 = 441;

/// What a client that has to go is answered, if its request is one that it repeats elsewhere by
/// itself. Pulls are refused as by any slave, and come again on another connection: Java's client
/// now and then never hears of a pull that it has moved.
pub(crate) fn answer(request: &RemotingCommand) -> Option<Response> {
    let is_send = matches!(
        request.request_code(),
        RequestCode::SEND_MESSAGE | RequestCode::SEND_MESSAGE_V2 | RequestCode::SEND_BATCH_MESSAGE
    );
    if !is_send || request.version <= LAST_VERSION_WITHOUT_GO_AWAY {
        return None;
    }
    let remark = "this broker is not the master any more: connect anew";
    Some(RemotingCommand::error(ResponseCode::GO_AWAY, remark).into())
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Farewell {
    /// Connections with smaller numbers are to go.
    before: AtomicU64,
}

impl Farewell {
    /// Whether who is connected there has to go.
    pub(crate) fn is_said_to(&self, channel: &Channel) -> bool {
        channel.id() < self.before.load(Ordering::Relaxed)
    }

    fn say(&self) {
        self.before.store(Channel::next_id(), Ordering::Relaxed);
    }
}

/// Whether clients know the master by an address that is not only its own, on another machine
/// perhaps. (On one machine the port of the master does all this.)
fn has_shared_address(broker: &Broker) -> bool {
    let settings = broker.settings();
    settings.master_listen_port.is_none() && !settings.master_address.trim().is_empty()
}

/// Sends clients away whenever this broker ceases to be master.
pub(crate) async fn run(broker: Arc<Broker>, server: Arc<Server<BrokerProcessor>>) {
    let mut roles = broker.role.subscribe();
    let mut was_master = false;
    while has_shared_address(&broker) {
        let is_master = broker.role.is_master();
        if was_master && !is_master {
            let (broker, server) = (Arc::clone(&broker), Arc::clone(&server));
            // Beside this loop, which must see what comes next.
            tokio::spawn(async move { say(&broker, &server).await });
        }
        was_master = is_master;
        if roles.changed().await.is_err() {
            return;
        }
    }
}

async fn say(broker: &Broker, server: &Server<BrokerProcessor>) {
    sleep(FORWARD_TIME).await;
    if broker.role.is_master() {
        // It is again: they are where they should be.
        return;
    }
    broker.farewell.say();
    // Those who wait for messages ask again.
    broker.hold.wake_all();
    sleep(GO_TIME).await;
    server.close_connections();
}

/// Gives the mastership to another replica before this broker ends, if there is one to take it.
pub(crate) async fn resign(broker: &Arc<Broker>, server: &Server<BrokerProcessor>) {
    let Some(replication) = &broker.replication else { return };
    if !broker.role.is_master() {
        return;
    }
    let given = async {
        let mut roles = broker.role.subscribe();
        if let Err(error) = replication.resign().await {
            tracing::info!(error, "no other replica takes the mastership");
            return;
        }
        // Asked once: a second time would take it from the new master.
        let _ = roles.wait_for(|_| !broker.role.is_master()).await;
    };
    let _ = timeout(RESIGN_LIMIT, given).await;
    if !broker.role.is_master() && has_shared_address(broker) {
        say(broker, server).await;
    }
}
