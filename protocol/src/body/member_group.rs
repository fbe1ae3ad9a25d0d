//! Members of one broker name.

use std::collections::BTreeMap;

use super::body;

body! {
    /// The brokers of one name, by id.
    pub struct BrokerMemberGroup {
        broker_addrs: BTreeMap<i64, String>,
        broker_name: String,
        cluster: String,
    }

    /// Answer to `GET_BROKER_MEMBER_GROUP`.
    pub struct BrokerMemberGroupResponse {
        broker_member_group: Option<BrokerMemberGroup>,
    }
}
