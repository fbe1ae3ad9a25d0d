//! Reading registrations and taking them into the table, a turn at a time.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use protocol::header::route::RegisterBrokerResponseHeader;
use protocol::register_broker::RegisterBrokerBody;
use tokio::sync::OwnedMutexGuard;
use tokio::time::Instant;

use crate::metrics::Metrics;
use crate::processor::RequestError;
use crate::registration::Registration;
use crate::route_table::{BrokerKey, RouteTable};

/// Broker addresses whose turns are remembered before those that nobody waits for are dropped.
const TURNS_KEPT: usize = 256;

/// A registration as it came.
pub(crate) struct Incoming {
    /// `body_hash` is yet to be set.
    pub(crate) registration: Registration,
    pub(crate) body: Bytes,
    /// Of the broker.
    pub(crate) version: i32,
    /// Of the body, as the header has it.
    pub(crate) crc32: i32,
}

/// Reads registrations. Clones are the same.
#[derive(Clone)]
pub(crate) struct Registrar {
    pub(crate) routes: Arc<RwLock<RouteTable>>,
    pub(crate) metrics: Metrics,
    hasher: RandomState,
}

impl Registrar {
    pub(crate) fn new(routes: Arc<RwLock<RouteTable>>, metrics: Metrics) -> Self {
        Self { routes, metrics, hasher: RandomState::new() }
    }

    /// Takes a registration in. The topics come in turns at the lock of the table.
    pub(crate) fn register(
        &self,
        incoming: Incoming,
    ) -> Result<RegisterBrokerResponseHeader, RequestError> {
        let Incoming { mut registration, body, version, crc32 } = incoming;
        registration.body_hash = self.hasher.hash_one(&*body);
        // Brokers register every 30 s, mostly with what is here already.
        if let Some(answer) = self.routes.write().register_again(&registration, Instant::now()) {
            return Ok(answer);
        }
        let table = RegisterBrokerBody::decode(&body, version, crc32)?;
        drop(body);
        let table = table.topic_config_serialize_wrapper;
        let topics = table.topic_config_table.len();
        let registered = self.routes.write().register(&registration, table, Instant::now())?;
        if let Some(mut update) = registered.topics {
            let mut routes = self.routes.write();
            while routes.take_topics_turn(&mut update) {
                RwLockWriteGuard::bump(&mut routes);
            }
        }
        self.metrics.sizes(self.routes.read().sizes());
        if registered.is_new {
            let Registration { key, broker_name, broker_id, .. } = registration;
            let BrokerKey { cluster, addr } = key;
            tracing::info!(cluster, broker_name, broker_id, addr, topics, "new broker");
        }
        Ok(registered.answer)
    }

    /// Takes out what is left of brokers that are gone.
    pub(crate) fn sweep(&self) {
        let mut after = None;
        let mut routes = self.routes.write();
        loop {
            after = routes.sweep_turn(after.as_ref());
            if after.is_none() {
                break;
            }
            RwLockWriteGuard::bump(&mut routes);
        }
        self.metrics.sizes(routes.sizes());
    }
}

/// Lets the registrations of one broker follow each other in the order in which they came.
#[derive(Default)]
pub(crate) struct Turns {
    brokers: Mutex<HashMap<BrokerKey, Arc<tokio::sync::Mutex<()>>>>,
}

impl Turns {
    /// Waits until it is the turn of whoever calls.
    pub(crate) async fn turn(&self, key: &BrokerKey) -> OwnedMutexGuard<()> {
        let turn = {
            let mut brokers = self.brokers.lock();
            if brokers.len() >= TURNS_KEPT {
                brokers.retain(|_, turn| Arc::strong_count(turn) > 1);
            }
            Arc::clone(brokers.entry(key.clone()).or_default())
        };
        turn.lock_owned().await
    }
}
