//! Replication, as administrators and other brokers see it.

use protocol::header::ha::ExchangeHaInfoHeader;

use crate::broker::Broker;
use crate::processor::{success, with_header, with_json};
use crate::refusal::Answer;

pub(crate) fn status(broker: &Broker) -> Answer {
    with_json(&broker.ha.info(broker))
}

/// A slave asks where the log is to be had. A slave believes only name servers and its own
/// settings, and takes a master's notice for what it is worth.
pub(crate) fn exchange(broker: &Broker) -> Answer {
    if broker.ha.is_slave() {
        return success();
    }
    let identity = &broker.identity;
    with_header(&ExchangeHaInfoHeader {
        master_ha_address: Some(identity.ha_address.clone()),
        master_flush_offset: Some(broker.store.log_flushed()),
        master_address: Some(identity.address.clone()),
    })
}
