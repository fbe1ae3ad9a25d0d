//! The calls of administration.

use std::collections::BTreeMap;

use protocol::body::{
    ConsumeStats, ConsumerConnection, GroupList, KvTable, SubscriptionGroupWrapper, TopicList,
    TopicStatsTable,
};
use protocol::command::RemotingCommand;
use protocol::header::client::ConsumerGroupRequestHeader;
use protocol::header::group::{
    DeleteSubscriptionGroupRequestHeader, GetConsumeStatsRequestHeader, GroupRequestHeader,
};
use protocol::header::offset::ResetOffsetRequestHeader;
use protocol::header::query::{QueryMessageRequestHeader, ViewMessageRequestHeader};
use protocol::header::route::{
    AddWritePermResponseHeader, WipeWritePermResponseHeader, WritePermRequestHeader,
};
use protocol::header::topic::{
    CreateTopicRequestHeader, DeleteTopicFromNamesrvRequestHeader, TopicRequestHeader,
    TopicsByClusterRequestHeader,
};
use protocol::header::{EmptyHeader, Header};
use protocol::message::MessageExt;
use protocol::message_id::parse_offset_message_id;
use protocol::request_code::RequestCode;
use protocol::response_code::ResponseCode;
use protocol::route::{ClusterInfo, MASTER_ID, TopicRouteData};
use protocol::subscription::SubscriptionGroupConfig;
use protocol::topic_config::TopicConfig;
use protocol::topic_name::AUTO_CREATE_TOPIC;
use serde::de::DeserializeOwned;

use crate::instance::{expect_success, json_request, read_body, read_header};
use crate::{ClientError, ClientInstance};

/// Largest body of a message that is looked at, decompressed, in bytes.
const BODY_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A broker of a cluster.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct BrokerAddress {
    /// Its cluster.
    pub cluster: String,
    /// Its broker name.
    pub name: String,
    /// 0 for a master.
    pub id: i64,
    /// `host:port`.
    pub addr: String,
}

/// Administration by way of an instance. Calls of brokers take the broker's address, which
/// [`Admin::brokers`] tells.
#[derive(Clone)]
pub struct Admin {
    instance: ClientInstance,
}

impl Admin {
    /// Administration by way of this instance.
    pub fn new(instance: &ClientInstance) -> Self {
        Self { instance: instance.clone() }
    }

    /// Addresses of the name servers.
    pub fn name_servers(&self) -> &[String] {
        self.instance.name_servers()
    }

    /// All clusters, as some name server knows them.
    ///
    /// # Errors
    /// When no name server answers.
    pub async fn cluster_info(&self) -> Result<ClusterInfo, ClientError> {
        self.ask_name_server(RequestCode::GET_BROKER_CLUSTER_INFO, &EmptyHeader).await
    }

    /// All clusters, as this name server knows them.
    ///
    /// # Errors
    /// When it does not answer.
    pub async fn cluster_info_at(&self, name_server: &str) -> Result<ClusterInfo, ClientError> {
        self.ask(name_server, RequestCode::GET_BROKER_CLUSTER_INFO, &EmptyHeader).await
    }

    /// All brokers, ordered by cluster, name and id.
    ///
    /// # Errors
    /// When no name server answers, or no broker is registered.
    pub async fn brokers(&self) -> Result<Vec<BrokerAddress>, ClientError> {
        let brokers = self.cluster_info().await?.broker_addr_table.into_values();
        let mut all: Vec<_> = brokers
            .flat_map(|broker| {
                let (cluster, name) = (broker.cluster, broker.broker_name);
                broker.broker_addrs.into_iter().map(move |(id, addr)| BrokerAddress {
                    cluster: cluster.clone(),
                    name: name.clone(),
                    id,
                    addr,
                })
            })
            .collect();
        all.sort();
        if all.is_empty() { Err(ClientError::NoBroker) } else { Ok(all) }
    }

    /// All masters, or those of one cluster.
    ///
    /// # Errors
    /// As [`Self::brokers`].
    pub async fn masters(&self, cluster: Option<&str>) -> Result<Vec<BrokerAddress>, ClientError> {
        let mut brokers = self.brokers().await?;
        brokers.retain(|broker| broker.id == MASTER_ID);
        brokers.retain(|broker| cluster.is_none_or(|cluster| broker.cluster == cluster));
        if brokers.is_empty() { Err(ClientError::NoBroker) } else { Ok(brokers) }
    }

    /// Names of all topics, or of those of one cluster.
    ///
    /// # Errors
    /// When no name server answers or it keeps its list to itself.
    pub async fn topic_list(&self, cluster: Option<&str>) -> Result<TopicList, ClientError> {
        match cluster {
            Some(cluster) => {
                let header = TopicsByClusterRequestHeader { cluster: cluster.to_owned() };
                self.ask_name_server(RequestCode::GET_TOPICS_BY_CLUSTER, &header).await
            }
            None => {
                let code = RequestCode::GET_ALL_TOPIC_LIST_FROM_NAMESERVER;
                self.ask_name_server(code, &EmptyHeader).await
            }
        }
    }

    /// The route of a topic as a name server tells it now.
    ///
    /// # Errors
    /// When there is none or no name server answers.
    pub async fn route(&self, topic: &str) -> Result<TopicRouteData, ClientError> {
        self.instance.fetch_route(topic).await
    }

    /// Creates a topic at a broker, or changes it.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn create_topic(&self, broker: &str, topic: &TopicConfig) -> Result<(), ClientError> {
        let attributes: Vec<_> =
            topic.attributes.iter().map(|(name, value)| format!("+{name}={value}")).collect();
        let header = CreateTopicRequestHeader {
            topic: topic.topic_name.clone(),
            default_topic: AUTO_CREATE_TOPIC.to_owned(),
            read_queue_nums: topic.read_queue_nums,
            write_queue_nums: topic.write_queue_nums,
            perm: topic.perm,
            topic_filter_type: topic.topic_filter_type.name().to_owned(),
            topic_sys_flag: Some(topic.topic_sys_flag),
            order: topic.order,
            attributes: (!attributes.is_empty()).then(|| attributes.join(",")),
            force: false,
        };
        let request = RemotingCommand::request(RequestCode::UPDATE_AND_CREATE_TOPIC, &header);
        self.instance.call(broker, request).await.map(drop)
    }

    /// Settings of a topic at a broker.
    ///
    /// # Errors
    /// When the broker does not answer or has no such topic.
    pub async fn topic_config(
        &self,
        broker: &str,
        topic: &str,
    ) -> Result<TopicConfig, ClientError> {
        let header = TopicRequestHeader { topic: topic.to_owned() };
        self.ask(broker, RequestCode::GET_TOPIC_CONFIG, &header).await
    }

    /// Deletes a topic and its messages at a broker. Its route stays until
    /// [`Self::delete_topic_at_name_servers`].
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn delete_topic(&self, broker: &str, topic: &str) -> Result<(), ClientError> {
        let header = TopicRequestHeader { topic: topic.to_owned() };
        let request = RemotingCommand::request(RequestCode::DELETE_TOPIC_IN_BROKER, &header);
        self.instance.call(broker, request).await.map(drop)
    }

    /// Deletes the route of a topic at every name server; with a cluster, only its brokers.
    ///
    /// # Errors
    /// When one of them does not answer or refuses.
    pub async fn delete_topic_at_name_servers(
        &self,
        topic: &str,
        cluster: Option<&str>,
    ) -> Result<(), ClientError> {
        let header = DeleteTopicFromNamesrvRequestHeader {
            topic: topic.to_owned(),
            cluster_name: cluster.map(str::to_owned),
        };
        for name_server in self.name_servers() {
            let request = RemotingCommand::request(RequestCode::DELETE_TOPIC_IN_NAMESRV, &header);
            self.instance.call(name_server, request).await?;
        }
        self.instance.routes().remove(topic);
        Ok(())
    }

    /// Offsets of a topic at a broker.
    ///
    /// # Errors
    /// When the broker does not answer or has no such topic.
    pub async fn topic_stats_at(
        &self,
        broker: &str,
        topic: &str,
    ) -> Result<TopicStatsTable, ClientError> {
        let header = TopicRequestHeader { topic: topic.to_owned() };
        self.ask(broker, RequestCode::GET_TOPIC_STATS_INFO, &header).await
    }

    /// Offsets of a topic at all its brokers.
    ///
    /// # Errors
    /// When one of them has no master or does not answer.
    pub async fn topic_stats(&self, topic: &str) -> Result<TopicStatsTable, ClientError> {
        let mut all = TopicStatsTable::default();
        for broker in self.route(topic).await?.broker_datas {
            let Some(addr) = broker.address() else {
                return Err(ClientError::NoMaster { broker: broker.broker_name });
            };
            let stats = self.topic_stats_at(addr, topic).await?;
            all.offset_table.0.extend(stats.offset_table.0);
            all.topic_put_tps += stats.topic_put_tps;
        }
        Ok(all)
    }

    /// Groups that consume a topic at a broker.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn topic_consumers(
        &self,
        broker: &str,
        topic: &str,
    ) -> Result<Vec<String>, ClientError> {
        let header = TopicRequestHeader { topic: topic.to_owned() };
        let code = RequestCode::QUERY_TOPIC_CONSUME_BY_WHO;
        let list: GroupList = self.ask(broker, code, &header).await?;
        Ok(list.group_list)
    }

    /// Creates a consumer group at a broker, or changes it.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn create_group(
        &self,
        broker: &str,
        group: &SubscriptionGroupConfig,
    ) -> Result<(), ClientError> {
        let code = RequestCode::UPDATE_AND_CREATE_SUBSCRIPTIONGROUP;
        self.instance.call(broker, json_request(code, group)?).await.map(drop)
    }

    /// Settings of a consumer group at a broker.
    ///
    /// # Errors
    /// When the broker does not answer or has no such group.
    pub async fn group_config(
        &self,
        broker: &str,
        group: &str,
    ) -> Result<SubscriptionGroupConfig, ClientError> {
        let header = GroupRequestHeader { group: group.to_owned() };
        self.ask(broker, RequestCode::GET_SUBSCRIPTIONGROUP_CONFIG, &header).await
    }

    /// All consumer groups of a broker.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn groups(&self, broker: &str) -> Result<SubscriptionGroupWrapper, ClientError> {
        self.ask(broker, RequestCode::GET_ALL_SUBSCRIPTIONGROUP_CONFIG, &EmptyHeader).await
    }

    /// Deletes a consumer group at a broker, and its offsets if so wanted.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn delete_group(
        &self,
        broker: &str,
        group: &str,
        clean_offset: bool,
    ) -> Result<(), ClientError> {
        let header =
            DeleteSubscriptionGroupRequestHeader { group_name: group.to_owned(), clean_offset };
        let request = RemotingCommand::request(RequestCode::DELETE_SUBSCRIPTIONGROUP, &header);
        self.instance.call(broker, request).await.map(drop)
    }

    /// Who consumes in a group, as a broker knows it; `None` when nobody is connected.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn consumer_connections(
        &self,
        broker: &str,
        group: &str,
    ) -> Result<Option<ConsumerConnection>, ClientError> {
        let header = ConsumerGroupRequestHeader { consumer_group: group.to_owned() };
        let code = RequestCode::GET_CONSUMER_CONNECTION_LIST;
        let answer = self.ask(broker, code, &header).await;
        match answer {
            Err(error) if error.code() == Some(ResponseCode::CONSUMER_NOT_ONLINE) => Ok(None),
            answer => answer.map(Some),
        }
    }

    /// How far a group is at a broker, in one topic or in all.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn consume_stats_at(
        &self,
        broker: &str,
        group: &str,
        topic: Option<&str>,
    ) -> Result<ConsumeStats, ClientError> {
        let header = GetConsumeStatsRequestHeader {
            consumer_group: group.to_owned(),
            topic: topic.map(str::to_owned),
            topic_list: None,
        };
        self.ask(broker, RequestCode::GET_CONSUME_STATS, &header).await
    }

    /// Moves a group's offsets at a broker to the messages stored since `timestamp` (milliseconds
    /// since the epoch; -1: to the end). Returns the new offsets.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn reset_offset(
        &self,
        broker: &str,
        group: &str,
        topic: &str,
        timestamp: i64,
    ) -> Result<protocol::body::ResetOffsetBody, ClientError> {
        let header = ResetOffsetRequestHeader {
            group: group.to_owned(),
            topic: topic.to_owned(),
            queue_id: -1,
            offset: None,
            timestamp,
            is_force: true,
        };
        self.ask(broker, RequestCode::INVOKE_BROKER_TO_RESET_OFFSET, &header).await
    }

    /// Figures of a running broker.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn broker_runtime_info(
        &self,
        broker: &str,
    ) -> Result<BTreeMap<String, String>, ClientError> {
        let code = RequestCode::GET_BROKER_RUNTIME_INFO;
        let info: KvTable = self.ask(broker, code, &EmptyHeader).await?;
        Ok(info.table)
    }

    /// Settings of a broker.
    ///
    /// # Errors
    /// When the broker does not answer.
    pub async fn broker_config(
        &self,
        broker: &str,
    ) -> Result<BTreeMap<String, String>, ClientError> {
        let request = RemotingCommand::request_without_header(RequestCode::GET_BROKER_CONFIG);
        let response = self.instance.call(broker, request).await?;
        let text = String::from_utf8_lossy(&response.body);
        let lines = text.lines().map(str::trim).filter(|line| !line.starts_with(['#', '!']));
        let entries = lines.filter_map(|line| line.split_once('='));
        Ok(entries.map(|(key, value)| (key.trim().to_owned(), value.trim().to_owned())).collect())
    }

    /// Changes settings of a running broker.
    ///
    /// # Errors
    /// When the broker does not answer or refuses.
    pub async fn update_broker_config(
        &self,
        broker: &str,
        settings: &BTreeMap<String, String>,
    ) -> Result<(), ClientError> {
        let text: String = settings.iter().map(|(key, value)| format!("{key}={value}\n")).collect();
        let request = RemotingCommand::request_without_header(RequestCode::UPDATE_BROKER_CONFIG);
        self.instance.call(broker, request.with_body(text)).await.map(drop)
    }

    /// Takes the write permission of all topics of a broker name away, at every name server: no
    /// producer will choose it. Returns the number of topics by name server.
    ///
    /// # Errors
    /// When one of them does not answer or refuses.
    pub async fn wipe_write_perm(
        &self,
        broker_name: &str,
    ) -> Result<BTreeMap<String, i32>, ClientError> {
        let count = |header: WipeWritePermResponseHeader| header.wipe_topic_count;
        self.change_write_perm(RequestCode::WIPE_WRITE_PERM_OF_BROKER, broker_name, count).await
    }

    /// Gives the write permission back that [`Self::wipe_write_perm`] took away.
    ///
    /// # Errors
    /// When one of the name servers does not answer or refuses.
    pub async fn add_write_perm(
        &self,
        broker_name: &str,
    ) -> Result<BTreeMap<String, i32>, ClientError> {
        let count = |header: AddWritePermResponseHeader| header.add_topic_count;
        self.change_write_perm(RequestCode::ADD_WRITE_PERM_OF_BROKER, broker_name, count).await
    }

    async fn change_write_perm<H: Header>(
        &self,
        code: RequestCode,
        broker_name: &str,
        count: impl Fn(H) -> i32,
    ) -> Result<BTreeMap<String, i32>, ClientError> {
        let header = WritePermRequestHeader { broker_name: broker_name.to_owned() };
        let mut counts = BTreeMap::new();
        for name_server in self.name_servers() {
            let request = RemotingCommand::request(code, &header);
            let response = self.instance.call(name_server, request).await?;
            let header = read_header(name_server, code, &response)?;
            counts.insert(name_server.clone(), count(header));
        }
        Ok(counts)
    }

    /// The message that an `offsetMsgId` names.
    ///
    /// # Errors
    /// When it is no such id, the broker in it does not answer, or has no such message.
    pub async fn view_message(&self, offset_msg_id: &str) -> Result<MessageExt, ClientError> {
        let id_error = |source| ClientError::MessageId { id: offset_msg_id.to_owned(), source };
        let (addr, offset) = parse_offset_message_id(offset_msg_id).map_err(id_error)?;
        let addr = addr.to_string();
        let header = ViewMessageRequestHeader { topic: None, offset };
        let request = RemotingCommand::request(RequestCode::VIEW_MESSAGE_BY_ID, &header);
        let response = self.instance.call(&addr, request).await?;
        let decoded = MessageExt::decode(&response.body, BODY_BYTES_MAX);
        decoded.map_err(|source| ClientError::Message { addr, source })
    }

    /// Messages of a topic by key, or by the id that its sender gave it.
    ///
    /// # Errors
    /// When there is no route or a broker does not answer. Finding none is no error.
    pub async fn query_message(
        &self,
        topic: &str,
        key: &str,
        is_unique_key: bool,
        max: i32,
    ) -> Result<Vec<MessageExt>, ClientError> {
        let header = QueryMessageRequestHeader {
            topic: topic.to_owned(),
            key: key.to_owned(),
            max_num: max,
            begin_timestamp: 0,
            end_timestamp: i64::MAX,
            unique_key_query: is_unique_key.then_some(true),
            index_type: None,
            last_key: None,
        };
        let code = RequestCode::QUERY_MESSAGE;
        let mut found = Vec::new();
        for broker in self.route(topic).await?.broker_datas {
            let Some(addr) = broker.address() else { continue };
            let request = RemotingCommand::request(code, &header);
            let response = match self.instance.call(addr, request).await {
                Err(error) if error.code() == Some(ResponseCode::QUERY_NOT_FOUND) => continue,
                response => response?,
            };
            let messages = MessageExt::decode_all(&response.body, BODY_BYTES_MAX);
            let error = |source| ClientError::Message { addr: addr.to_owned(), source };
            found.extend(messages.map_err(error)?);
        }
        // The index knows hashes only.
        let matches = |message: &MessageExt| match is_unique_key {
            true => message.msg_id() == key,
            false => message.keys().any(|other| other == key),
        };
        found.retain(matches);
        found.sort_by_key(|message| message.store_timestamp);
        Ok(found)
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        addr: &str,
        code: RequestCode,
        header: &impl Header,
    ) -> Result<T, ClientError> {
        let request = RemotingCommand::request(code, header);
        let response = self.instance.call(addr, request).await?;
        read_body(addr, code, &response)
    }

    async fn ask_name_server<T: DeserializeOwned>(
        &self,
        code: RequestCode,
        header: &impl Header,
    ) -> Result<T, ClientError> {
        let request = RemotingCommand::request(code, header);
        let (addr, response) = self.instance.invoke_name_server(&request).await?;
        let response = expect_success(&addr, code, response)?;
        read_body(&addr, code, &response)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::{Fake, with_json};
    use crate::{ClientConfig, fake};

    #[tokio::test]
    async fn write_permission_is_changed_at_every_name_server() {
        let name_server = |count| {
            Fake::start(move |_| {
                let header = WipeWritePermResponseHeader { wipe_topic_count: count };
                Some(RemotingCommand::success_with(&header))
            })
        };
        let (one, two) = (name_server(1), name_server(2));
        let both = format!("{};{}", one.addr, two.addr);
        let instance = ClientInstance::start(ClientConfig::new(both)).await.unwrap();
        let counts = Admin::new(&instance).wipe_write_perm("a").await.unwrap();
        assert_eq!(counts, [(one.addr.clone(), 1), (two.addr.clone(), 2)].into());
    }

    #[tokio::test]
    async fn brokers_are_listed_and_refusals_say_who_and_what() {
        let data = fake::route(&[("b", "127.0.0.1:2"), ("a", "127.0.0.1:1")], 1).broker_datas;
        let fake = Fake::start(move |request| match request.request_code() {
            RequestCode::GET_BROKER_CLUSTER_INFO => {
                let brokers =
                    data.iter().map(|broker| (broker.broker_name.clone(), broker.clone()));
                with_json(&ClusterInfo {
                    broker_addr_table: brokers.collect(),
                    ..ClusterInfo::default()
                })
            }
            RequestCode::GET_BROKER_CONFIG => {
                Some(RemotingCommand::success().with_body("# by Java\nbrokerId=0\n a = b=c \n"))
            }
            RequestCode::GET_CONSUMER_CONNECTION_LIST => {
                Some(RemotingCommand::error(ResponseCode::CONSUMER_NOT_ONLINE, "nobody"))
            }
            _ => Some(RemotingCommand::error(ResponseCode::NO_PERMISSION, "go away")),
        });
        let admin = Admin::new(&fake::client(&fake).await);
        let names: Vec<_> = admin.masters(Some("c")).await.unwrap();
        assert_eq!(names.iter().map(|b| b.name.as_str()).collect::<Vec<_>>(), ["a", "b"]);
        assert!(matches!(admin.masters(Some("x")).await, Err(ClientError::NoBroker)));
        let config = admin.broker_config(&fake.addr).await.unwrap();
        let expected = [("brokerId", "0"), ("a", "b=c")];
        assert_eq!(config, expected.map(|(k, v)| (k.to_owned(), v.to_owned())).into());
        assert!(admin.consumer_connections(&fake.addr, "g").await.unwrap().is_none());
        let error = admin.delete_topic(&fake.addr, "t").await.unwrap_err();
        let expected = "refused 215 DELETE_TOPIC_IN_BROKER: 16 NO_PERMISSION: go away";
        assert_eq!(error.to_string(), format!("{} {expected}", fake.addr));
        let error = admin.view_message("xyz").await.unwrap_err();
        assert!(matches!(error, ClientError::MessageId { .. }), "{error}");
    }
}
