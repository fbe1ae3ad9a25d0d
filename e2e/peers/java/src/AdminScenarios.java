import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/** Scenarios of the admin client. Client lines 4.9 and 5.x share them. */
class AdminScenarios extends Kit {
    static void add() {
        SC.put("query_by_key_id_view", AdminScenarios::query);
        SC.put("reset_offset_admin", AdminScenarios::reset);
        SC.put("consumer_running_info", AdminScenarios::runningInfo);
        SC.put("consume_directly", AdminScenarios::consumeDirectly);
        SC.put("msg_trace", AdminScenarios::trace);
        SC.put("consume_progress", AdminScenarios::progress);
        SC.put("delete_topic", AdminScenarios::deleteTopic);
    }

    static void query(Closer c) throws Exception {
        String id = rid();
        DefaultMQProducer p = producer(c);
        DefaultMQAdminExt a = admin(c);
        Message m = msg(T, "q", id + "-q");
        m.setKeys("key" + id);
        SendResult r = p.send(m);
        long now = System.currentTimeMillis();
        await(
                () -> {
                    try {
                        return a.queryMessage(T, "key" + id, 10, now - 600000, now + 600000)
                                        .getMessageList()
                                        .size()
                                == 1;
                    } catch (Exception e) {
                        return false;
                    }
                },
                30,
                () -> "by key");
        MessageExt v = a.viewMessage(T, r.getOffsetMsgId());
        check(new String(v.getBody()).equals(id + "-q"), "by offset id");
        await(
                () -> {
                    try {
                        MessageExt u = a.viewMessage(T, r.getMsgId());
                        return u != null && new String(u.getBody()).equals(id + "-q");
                    } catch (Exception e) {
                        return false;
                    }
                },
                30,
                () -> "by unique id");
        try {
            a.queryMessage(T, "nokey" + id, 10, now - 600000, now + 600000);
            throw new AssertionError("a missing key was found");
        } catch (MQClientException e) {
            check(e.getResponseCode() == 208, e.getResponseCode());
        }
    }

    static void reset(Closer c) throws Exception {
        String id = rid(), g = "G_reset" + id;
        Sink s = new Sink();
        DefaultMQProducer p = producer(c);
        DefaultMQAdminExt a = admin(c);
        push(c, g, T, "reset", s);
        Thread.sleep(1500);
        long t = System.currentTimeMillis();
        Thread.sleep(50);
        for (int i = 0; i < 8; i++) p.send(msg(T, "reset", id + "-" + i));
        s.await(id, 8, 40);
        Thread.sleep(6000);
        Map<MessageQueue, Long> r = a.resetOffsetByTimestamp(T, g, t, true);
        check(r != null && r.size() >= 4, r);
        s.await(id, 16, 90);
    }

    static void runningInfo(Closer c) throws Exception {
        String id = rid(), g = "G_run" + id;
        DefaultMQPushConsumer x = push(c, g, T, "run", new Sink());
        DefaultMQAdminExt a = admin(c);
        await(
                () -> {
                    try {
                        return a.examineConsumerConnectionInfo(g).getConnectionSet().size() == 1;
                    } catch (Exception e) {
                        return false;
                    }
                },
                30,
                () -> "connection");
        String cid =
                a.examineConsumerConnectionInfo(g)
                        .getConnectionSet()
                        .iterator()
                        .next()
                        .getClientId();
        await(
                () -> {
                    try {
                        return a.getConsumerRunningInfo(g, cid, false).getMqTable().size() >= 4;
                    } catch (Exception e) {
                        return false;
                    }
                },
                40,
                () -> "running info");
        check(a.getConsumerRunningInfo(g, cid, true).getJstack().contains("Thread"), "jstack");
        check(a.getConsumeStatus(T, g, "").size() == 1, "consume status");
        check(a.queryTopicConsumeByWho(T).getGroupList().contains(g), "queryTopicConsumeByWho");
    }

    static void consumeDirectly(Closer c) throws Exception {
        String id = rid(), g = "G_cd" + id;
        Sink s = new Sink();
        push(c, g, T, "cdx", s);
        DefaultMQAdminExt a = admin(c);
        SendResult r =
                producer(c)
                        .send(msg(T, "cdy", id + "-cd")); // another tag: only the direct call may
        // deliver it
        await(
                () -> {
                    try {
                        return a.examineConsumerConnectionInfo(g).getConnectionSet().size() == 1;
                    } catch (Exception e) {
                        return false;
                    }
                },
                30,
                () -> "connection");
        String cid =
                a.examineConsumerConnectionInfo(g)
                        .getConnectionSet()
                        .iterator()
                        .next()
                        .getClientId();
        String res =
                String.valueOf(
                        a.consumeMessageDirectly(g, cid, T, r.getOffsetMsgId()).getConsumeResult());
        check(res.equals("CR_SUCCESS"), res);
        s.await(id, 1, 10);
    }

    static void trace(Closer c) throws Exception {
        String id = rid();
        DefaultMQAdminExt a = admin(c);
        DefaultMQProducer p = new DefaultMQProducer("PID_trace", hook(), true, null);
        p.setNamesrvAddr(NS);
        p.setInstanceName(inst());
        p.setVipChannelEnabled(false);
        p.start();
        c.on(p, p::shutdown);
        SendResult r = p.send(msg(T, "trace", id + "-t"));
        long now = System.currentTimeMillis();
        await(
                () -> {
                    try {
                        return a.queryMessage(
                                                "RMQ_SYS_TRACE_TOPIC",
                                                r.getMsgId(),
                                                10,
                                                now - 600000,
                                                now + 600000)
                                        .getMessageList()
                                        .size()
                                >= 1;
                    } catch (Exception e) {
                        return false;
                    }
                },
                60,
                () -> "no trace");
    }

    static void progress(Closer c) throws Exception {
        String id = rid(), g = "G_prog" + id;
        Sink s = new Sink();
        DefaultMQAdminExt a = admin(c);
        DefaultMQProducer p = producer(c);
        DefaultMQPushConsumer x = push(c, g, T, "prog", s);
        for (int i = 0; i < 8; i++) p.send(msg(T, "prog", id + "-" + i));
        s.await(id, 8, 40);
        await(
                () -> {
                    try {
                        return a.examineConsumeStats(g, T).getOffsetTable().size() >= 4
                                        && a.examineConsumeStats(g, T).computeTotalDiff() == 0
                                || a.examineConsumeStats(g, T).computeTotalDiff() < 50;
                    } catch (Exception e) {
                        return false;
                    }
                },
                60,
                () -> "diff");
        check(a.examineTopicStats(T).getOffsetTable().size() >= 4, "topic stats");
        check(a.fetchAllTopicList().getTopicList().contains(T), "topic list");
    }

    static void deleteTopic(Closer c) throws Exception {
        String id = rid(), t = "KitDel" + id;
        DefaultMQAdminExt a = admin(c);
        DefaultMQProducer p = producer(c);
        Compat.createTopic(a, brokerAddr(a), t);
        p.send(msg(t, "x", id));
        Set<String> ba = Collections.singleton(brokerAddr(a));
        a.deleteTopicInBroker(ba, t);
        Compat.deleteInNs(a, new HashSet<>(Arrays.asList(NS.split(";"))), t);
        await(
                () -> {
                    try {
                        a.examineTopicRouteInfo(t);
                        return false;
                    } catch (MQClientException e) {
                        return e.getResponseCode() == 17;
                    } catch (Exception e) {
                        return false;
                    }
                },
                30,
                () -> "route still there");
    }
}
