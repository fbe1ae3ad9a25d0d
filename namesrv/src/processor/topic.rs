//! Topics: routes and lists.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::RwLock;
use protocol::body::TopicList;
use protocol::command::RemotingCommand;
use protocol::header::route::GetRouteInfoRequestHeader;
use protocol::header::topic::{
    DeleteTopicFromNamesrvRequestHeader, TopicRequestHeader, TopicsByClusterRequestHeader,
};
use protocol::json;
use protocol::route::TopicRouteData;

use super::{Answer, NamesrvProcessor, RequestError};
use crate::config::NamesrvConfig;
use crate::kv_config::ORDER_TOPIC_CONFIG;
use crate::route_table::{RouteTable, TopicFilter, UnitTopics};

/// First version (`V4_9_4`) whose clients read strict JSON; older ones get fastjson's form.
const FIRST_STRICT_JSON_VERSION: i32 = 401;
/// While no broker is there at all, a route query right after the start waits so long for the first
/// one. Less than the 3 s that Java clients wait for an answer.
const FIRST_BROKER_WAIT: Duration = Duration::from_secs(1);

impl NamesrvProcessor {
    pub(super) async fn route(&self, request: &RemotingCommand) -> Answer {
        let header: GetRouteInfoRequestHeader = request.header()?;
        self.metrics.route_queries.inc();
        let config = self.config.get();
        let starting = self.started.elapsed() < wait_for_service(&config);
        if starting && config.need_wait_for_service {
            return Err(RequestError::NotReady);
        }
        let mut found = self.routes.read().route(&header.topic);
        if found.is_none() && starting {
            self.wait_for_first_broker().await;
            found = self.routes.read().route(&header.topic);
        }
        let Some(mut route) = found else {
            self.metrics.route_misses.inc();
            return Err(self.no_route(header.topic, &config));
        };
        if config.order_message_enable {
            let settings = self.kv_config.lock();
            route.order_topic_conf =
                settings.get(ORDER_TOPIC_CONFIG, &header.topic).map(str::to_owned);
        }
        let strict = request.version >= FIRST_STRICT_JSON_VERSION
            || header.accept_standard_json_only == Some(true);
        let body = if strict { json::to_vec(&route)? } else { json::to_vec_fastjson(&route)? };
        Ok(RemotingCommand::success().with_body(body))
    }

    async fn wait_for_first_broker(&self) {
        let mut brokers = self.brokers_changed.subscribe();
        let some =
            async { while self.routes.read().is_empty() && brokers.changed().await.is_ok() {} };
        let _ = tokio::time::timeout(FIRST_BROKER_WAIT, some).await;
    }

    /// "No such topic" makes clients and tools forget it, so it is not said while brokers may be
    /// about to register it: they do so every 30 s. In a cluster that is as new as this name server
    /// nothing can be missing.
    fn no_route(&self, topic: String, config: &NamesrvConfig) -> RequestError {
        let starting = self.started.elapsed() < wait_for_service(config);
        if starting && !self.routes.read().is_new_cluster(self.started_millis) {
            return RequestError::NotYet(topic);
        }
        RequestError::NoRoute(topic)
    }

    pub(super) async fn all_topics(&self) -> Answer {
        if !self.config.get().enable_all_topic_list {
            return Err(RequestError::TopicListDisabled);
        }
        self.topics(TopicFilter::All).await
    }

    pub(super) async fn topics_of_cluster(&self, request: &RemotingCommand) -> Answer {
        let header: TopicsByClusterRequestHeader = request.header()?;
        self.topics(TopicFilter::Cluster(header.cluster)).await
    }

    pub(super) async fn unit_topics(&self, which: UnitTopics) -> Answer {
        self.topics(TopicFilter::Units(which)).await
    }

    /// A list may have 50,000 names, so it is not written on a thread that serves connections.
    async fn topics(&self, filter: TopicFilter) -> Answer {
        let routes = Arc::clone(&self.routes);
        super::off_the_hot_path(move || super::json(&topic_list(&routes, &filter))).await
    }

    pub(super) fn delete_topic(&self, request: &RemotingCommand) -> Answer {
        let header: DeleteTopicFromNamesrvRequestHeader = request.header()?;
        let mut routes = self.routes.write();
        routes.delete_topic(&header.topic, header.cluster_name.as_deref());
        self.metrics.sizes(routes.sizes());
        Ok(RemotingCommand::success())
    }

    pub(super) fn add_topic(&self, request: &RemotingCommand) -> Answer {
        let header: TopicRequestHeader = request.header()?;
        let route: TopicRouteData = json::from_slice(&request.body)?;
        let mut routes = self.routes.write();
        routes.add_topic(&header.topic, route.queue_datas);
        self.metrics.sizes(routes.sizes());
        Ok(RemotingCommand::success())
    }
}

fn wait_for_service(config: &NamesrvConfig) -> Duration {
    Duration::from_secs(config.wait_seconds_for_service.into())
}

fn topic_list(routes: &RwLock<RouteTable>, filter: &TopicFilter) -> TopicList {
    let (mut names, mut after) = (Vec::new(), None);
    loop {
        after = routes.read().list_turn(filter, after.as_ref(), &mut names);
        if after.is_none() {
            break;
        }
    }
    let topic_list = names.iter().map(ToString::to_string).collect();
    TopicList { topic_list, broker_addr: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_config::KvConfig;
    use crate::metrics::Metrics;
    use crate::registrar::Incoming;
    use crate::registration::Registration;
    use crate::route_table::BrokerKey;
    use daemon::config::{Live, Loader};
    use protocol::body::TopicConfigTable;
    use protocol::data_version::DataVersion;
    use protocol::register_broker::RegisterBrokerBody;
    use protocol::request_code::RequestCode;
    use protocol::response_code::ResponseCode;
    use protocol::topic_config::TopicConfig;

    const LONG_AGO: i64 = 1_000;

    fn processor(settings: &[(&str, &str)]) -> NamesrvProcessor {
        let mut loader = Loader::<NamesrvConfig>::new();
        for (key, value) in settings {
            loader = loader.flag("test", key, value);
        }
        let config = Live::new(loader.load().unwrap());
        NamesrvProcessor::new(config, KvConfig::default(), Metrics::default())
    }

    /// A broker whose topics were changed last at this time.
    fn register(processor: &NamesrvProcessor, name: &str, changed: i64, topics: &[&str]) {
        let table = topics.iter().map(|t| ((*t).to_owned(), TopicConfig::new(*t, 4, 6))).collect();
        let data_version = DataVersion { timestamp: changed, ..DataVersion::default() };
        let body = RegisterBrokerBody {
            topic_config_serialize_wrapper: TopicConfigTable {
                data_version,
                topic_config_table: table,
            },
            ..RegisterBrokerBody::default()
        };
        let registration = Registration {
            key: BrokerKey { cluster: "c".into(), addr: format!("{name}:1") },
            broker_name: name.into(),
            broker_id: 0,
            ha_server_addr: String::new(),
            enable_acting_master: None,
            timeout: Duration::from_secs(120),
            connection: 1,
            body_hash: 0,
            topics_are_complete: false,
        };
        processor.routes.write().connected(1);
        let body = json::to_vec(&body).unwrap().into();
        let incoming = Incoming { registration, body, version: 513, crc32: 0 };
        processor.registrar.register(incoming).unwrap();
        processor.brokers_changed.send_replace(());
    }

    async fn ask(processor: &NamesrvProcessor, topic: &str) -> ResponseCode {
        let header = GetRouteInfoRequestHeader { topic: topic.into(), ..Default::default() };
        let request = RemotingCommand::request(RequestCode::GET_ROUTEINFO_BY_TOPIC, &header);
        match processor.route(&request).await {
            Ok(answer) => answer.response_code(),
            Err(error) => error.code(),
        }
    }

    const FOUND: ResponseCode = ResponseCode::SUCCESS;
    const NOT_YET: ResponseCode = ResponseCode::SYSTEM_ERROR;
    const NO_TOPIC: ResponseCode = ResponseCode::TOPIC_NOT_EXIST;

    #[tokio::test(start_paused = true)]
    async fn a_topic_that_brokers_may_be_about_to_register_is_not_denied() {
        let processor = processor(&[]);
        let began = tokio::time::Instant::now();
        assert_eq!(ask(&processor, "t").await, NOT_YET);
        assert_eq!(began.elapsed(), FIRST_BROKER_WAIT, "it waited for the first broker");
        let registered = async {
            tokio::time::sleep(FIRST_BROKER_WAIT / 2).await;
            register(&processor, "a", LONG_AGO, &["t", "u"]);
        };
        let (answer, ()) = tokio::join!(ask(&processor, "t"), registered);
        assert_eq!(answer, FOUND, "clients that asked too early notice nothing");
        let began = tokio::time::Instant::now();
        assert_eq!(ask(&processor, "of-b").await, NOT_YET);
        tokio::time::advance(Duration::from_secs(29)).await;
        assert_eq!(ask(&processor, "of-b").await, NOT_YET);
        register(&processor, "b", LONG_AGO, &["of-b", "u"]);
        assert_eq!(ask(&processor, "of-b").await, FOUND);
        assert_eq!(began.elapsed(), Duration::from_secs(29), "and nobody waited any more");
        tokio::time::advance(Duration::from_secs(15)).await;
        assert_eq!(ask(&processor, "none").await, NO_TOPIC);
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_cluster_is_not_delayed() {
        let processor = processor(&[]);
        register(&processor, "a", processor.started_millis, &["t", "u"]);
        register(&processor, "b", 0, &["t", "u"]);
        let began = tokio::time::Instant::now();
        assert_eq!(ask(&processor, "none").await, NO_TOPIC);
        assert_eq!(began.elapsed(), Duration::ZERO);
        register(&processor, "c", LONG_AGO, &["t", "u"]);
        assert_eq!(ask(&processor, "none").await, NOT_YET, "it was there before, as it turns out");
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_can_be_apaches_or_none() {
        let as_apache = processor(&[("needWaitForService", "true")]);
        register(&as_apache, "a", LONG_AGO, &["t", "u"]);
        assert_eq!(ask(&as_apache, "t").await, NOT_YET);
        tokio::time::advance(Duration::from_secs(45)).await;
        assert_eq!(ask(&as_apache, "t").await, FOUND);
        let none = processor(&[("waitSecondsForService", "0")]);
        assert_eq!(ask(&none, "t").await, NO_TOPIC);
    }
}
