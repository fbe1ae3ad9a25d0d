//! Subscription groups.

use std::collections::BTreeMap;

use super::body;
use crate::data_version::DataVersion;
use crate::subscription::{SubscriptionData, SubscriptionGroupConfig};

body! {
    /// Answer to `GET_ALL_SUBSCRIPTIONGROUP_CONFIG`, and `subscriptionGroup.json`.
    pub struct SubscriptionGroupWrapper {
        data_version: DataVersion,
        /// Group to topic to bits of what is forbidden.
        forbidden_table: BTreeMap<String, BTreeMap<String, i32>>,
        subscription_group_table: BTreeMap<String, SubscriptionGroupConfig>,
    }

    /// Body of `UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST`.
    pub struct SubscriptionGroupList {
        group_config_list: Vec<SubscriptionGroupConfig>,
    }

    /// Answer to `QUERY_TOPIC_CONSUME_BY_WHO`.
    pub struct GroupList {
        group_list: Vec<String>,
    }

    /// Answer to `QUERY_SUBSCRIPTION_BY_CONSUMER`.
    pub struct QuerySubscriptionResponse {
        group: String,
        subscription_data: Option<SubscriptionData>,
        topic: String,
    }
}
