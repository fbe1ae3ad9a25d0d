//! Brokers: registration, signs of life, write permission.

use std::sync::Arc;
use std::time::Duration;

use protocol::body::{BrokerMemberGroupResponse, KvTable};
use protocol::command::RemotingCommand;
use protocol::data_version::DataVersion;
use protocol::header::route::{
    AddWritePermResponseHeader, BrokerHeartbeatRequestHeader, BrokerIdentityRequestHeader,
    GetBrokerMemberGroupRequestHeader, QueryDataVersionResponseHeader, RegisterBrokerRequestHeader,
    WipeWritePermResponseHeader, WritePermRequestHeader,
};
use protocol::json;
use remoting::Context;
use tokio::time::Instant;

use super::{Answer, NamesrvProcessor, success_with};
use crate::kv_config::ORDER_TOPIC_CONFIG;
use crate::registrar::Incoming;
use crate::registration::Registration;
use crate::route_table::BrokerKey;

/// A registration with a larger body than this, some 300 topics, is read apart.
const LARGE_BODY_BYTES: usize = 64 * 1024;

fn millis(value: Option<i64>) -> Option<Duration> {
    value.and_then(|value| u64::try_from(value).ok()).filter(|v| *v > 0).map(Duration::from_millis)
}

impl NamesrvProcessor {
    /// Takes a registration in. A large one is not read on a thread that serves connections, and
    /// only so many at once: reading 50,000 topics takes some 100 ms and 50 MB.
    pub(super) async fn register(&self, context: &Context, request: RemotingCommand) -> Answer {
        let header: RegisterBrokerRequestHeader = request.header()?;
        let config = self.config.get();
        // From here on the end of the connection is noticed, whatever is under way by then.
        self.routes.write().connected(context.channel.id());
        let key = BrokerKey { cluster: header.cluster_name, addr: header.broker_addr };
        let turn = self.turns.turn(&key).await;
        let timeout = millis(header.heartbeat_timeout_millis);
        let registration = Registration {
            key,
            broker_name: header.broker_name,
            broker_id: header.broker_id,
            ha_server_addr: header.ha_server_addr,
            enable_acting_master: header.enable_acting_master,
            timeout: timeout.unwrap_or(config.broker_channel_expired_time),
            connection: context.channel.id(),
            body_hash: 0,
            topics_are_complete: config.delete_topic_with_broker_registration,
        };
        let large = request.body.len() > LARGE_BODY_BYTES;
        let incoming = Incoming {
            registration,
            body: request.body,
            version: request.version,
            crc32: header.body_crc32,
        };
        let registered = if large {
            let reading = Arc::clone(&self.reading).acquire_owned().await;
            let permit = reading.expect("the semaphore is never closed");
            let registrar = self.registrar.clone();
            // If the connection ends meanwhile, this goes on, and the next one waits for it.
            super::off_the_hot_path(move || {
                let _held = (turn, permit);
                registrar.register(incoming)
            })
            .await
        } else {
            self.registrar.register(incoming)
        };
        let answer = registered.inspect_err(|error| {
            self.metrics.registrations_refused.inc();
            let peer = context.channel.remote_addr();
            tracing::warn!(%error, %peer, "registration refused");
        })?;
        self.metrics.registrations.inc();
        self.brokers_changed.send_replace(());
        let mut response = success_with(&answer)?;
        if config.return_order_topic_config_to_broker
            && let Some(table) = self.kv_config.lock().namespace(ORDER_TOPIC_CONFIG)
        {
            response.body = json::to_vec(&KvTable { table: table.clone() })?.into();
        }
        Ok(response)
    }

    pub(super) fn unregister(&self, request: &RemotingCommand) -> Answer {
        let header: BrokerIdentityRequestHeader = request.header()?;
        let key = BrokerKey { cluster: header.cluster_name, addr: header.broker_addr };
        let mut routes = self.routes.write();
        routes.unregister(&key, &header.broker_name, header.broker_id);
        drop(routes);
        self.sweep();
        tracing::info!(
            cluster = key.cluster,
            broker_name = header.broker_name,
            broker_id = header.broker_id,
            addr = key.addr,
            "broker unregistered"
        );
        Ok(RemotingCommand::success())
    }

    pub(super) fn heartbeat(&self, request: &RemotingCommand) -> Answer {
        let header: BrokerHeartbeatRequestHeader = request.header()?;
        let key = BrokerKey { cluster: header.cluster_name, addr: header.broker_addr };
        let timeout = millis(header.heartbeat_timeout_mills);
        self.routes.write().heartbeat(&key, timeout, Instant::now());
        Ok(RemotingCommand::success())
    }

    pub(super) fn query_data_version(&self, request: &RemotingCommand) -> Answer {
        let header: BrokerIdentityRequestHeader = request.header()?;
        let version: DataVersion = json::from_slice(&request.body)?;
        let key = BrokerKey { cluster: header.cluster_name, addr: header.broker_addr };
        let (changed, known) =
            self.routes.write().query_data_version(&key, version, Instant::now());
        let response = success_with(&QueryDataVersionResponseHeader { changed })?;
        Ok(match known {
            Some(known) => response.with_body(json::to_vec(&known)?),
            None => response,
        })
    }

    pub(super) fn member_group(&self, request: &RemotingCommand) -> Answer {
        let header: GetBrokerMemberGroupRequestHeader = request.header()?;
        let group = self.routes.read().member_group(&header.cluster_name, &header.broker_name);
        super::json(&BrokerMemberGroupResponse { broker_member_group: Some(group) })
    }

    pub(super) fn wipe_write_perm(&self, request: &RemotingCommand) -> Answer {
        let header: WritePermRequestHeader = request.header()?;
        let wipe_topic_count = self.routes.write().wipe_write_perm(&header.broker_name);
        tracing::info!(
            broker_name = header.broker_name,
            wipe_topic_count,
            "write permission wiped"
        );
        success_with(&WipeWritePermResponseHeader { wipe_topic_count })
    }

    pub(super) fn add_write_perm(&self, request: &RemotingCommand) -> Answer {
        let header: WritePermRequestHeader = request.header()?;
        let add_topic_count = self.routes.write().add_write_perm(&header.broker_name);
        tracing::info!(broker_name = header.broker_name, add_topic_count, "write permission given");
        success_with(&AddWritePermResponseHeader { add_topic_count })
    }
}
