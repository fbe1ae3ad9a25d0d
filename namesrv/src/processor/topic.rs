//! Topics: routes and lists.

use std::time::Duration;

use protocol::command::RemotingCommand;
use protocol::header::route::GetRouteInfoRequestHeader;
use protocol::header::topic::{
    DeleteTopicFromNamesrvRequestHeader, TopicRequestHeader, TopicsByClusterRequestHeader,
};
use protocol::json;
use protocol::route::TopicRouteData;

use super::{Answer, NamesrvProcessor, RequestError};
use crate::kv_config::ORDER_TOPIC_CONFIG;
use crate::route_table::UnitTopics;

/// First version (`V4_9_4`) whose clients read strict JSON; older ones get fastjson's form.
const FIRST_STRICT_JSON_VERSION: i32 = 401;

impl NamesrvProcessor {
    pub(super) fn route(&self, request: &RemotingCommand) -> Answer {
        let header: GetRouteInfoRequestHeader = request.header()?;
        self.metrics.route_queries.inc();
        let config = self.config.get();
        let wait = Duration::from_secs(config.wait_seconds_for_service.into());
        if config.need_wait_for_service && self.started.elapsed() < wait {
            return Err(RequestError::NotReady);
        }
        let Some(mut route) = self.routes.read().route(&header.topic) else {
            self.metrics.route_misses.inc();
            return Err(RequestError::NoRoute(header.topic));
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

    pub(super) fn all_topics(&self) -> Answer {
        if !self.config.get().enable_all_topic_list {
            return Err(RequestError::TopicListDisabled);
        }
        super::json(&self.routes.read().topic_list())
    }

    pub(super) fn topics_of_cluster(&self, request: &RemotingCommand) -> Answer {
        let header: TopicsByClusterRequestHeader = request.header()?;
        super::json(&self.routes.read().topics_of_cluster(&header.cluster))
    }

    pub(super) fn unit_topics(&self, which: UnitTopics) -> Answer {
        super::json(&self.routes.read().unit_topics(which))
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
