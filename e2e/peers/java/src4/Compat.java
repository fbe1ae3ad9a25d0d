import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.protocol.heartbeat.MessageModel;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

import java.util.Set;

/** What differs between the client lines. */
class Compat {
    /** Adds the scenarios that only this line has. */
    static void add() {}

    static void broadcast(DefaultMQPushConsumer c) {
        c.setMessageModel(MessageModel.BROADCASTING);
    }

    static TransactionMQProducer tx(String g, RPCHook h) {
        return new TransactionMQProducer(null, g, h);
    }

    static void createTopic(DefaultMQAdminExt a, String addr, String t) throws Exception {
        a.createAndUpdateTopicConfig(addr, new TopicConfig(t, 4, 4, 6));
    }

    static void deleteInNs(DefaultMQAdminExt a, Set<String> ns, String t) throws Exception {
        a.deleteTopicInNameServer(ns, t, System.getenv().getOrDefault("CLUSTER", "DefaultCluster"));
    }
}
