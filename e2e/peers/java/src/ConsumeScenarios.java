import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.client.producer.selector.SelectMessageQueueByHash;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

import java.text.SimpleDateFormat;
import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/** Scenarios of push consumers. Client lines 4.9 and 5.x share them. */
class ConsumeScenarios extends Kit {
    static void add() {
        SC.put("tag_filter", ConsumeScenarios::tags);
        SC.put("sql92_filter", ConsumeScenarios::sql);
        SC.put("ordered_orderly", ConsumeScenarios::orderly);
        SC.put("orderly_suspend", ConsumeScenarios::orderlySuspend);
        SC.put("rebalance_two_consumers", ConsumeScenarios::rebalance);
        SC.put("broadcasting", ConsumeScenarios::broadcasting);
        SC.put("retry_then_dlq", ConsumeScenarios::retryDlq);
        SC.put("consume_from_timestamp", ConsumeScenarios::fromTimestamp);
    }

    static void tags(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink(), all = new Sink();
        push(c, "G_tagA" + id, T, "tagA || tagC", s);
        push(c, "G_tagAll" + id, T, "*", all);
        DefaultMQProducer p = producer(c);
        for (int i = 0; i < 12; i++)
            p.send(msg(T, "tag" + "ABC".charAt(i % 3), id + "-" + "ABC".charAt(i % 3) + i));
        s.await(id, 8, 40);
        all.await(id, 12, 40);
        Thread.sleep(500);
        check(s.of(id).size() == 8, s.bodies(id));
        for (String b : s.bodies(id)) check(!b.contains("-B"), b);
    }

    static void sql(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        push(
                c,
                "G_sql" + id,
                T,
                null,
                s,
                x -> {
                    try {
                        x.subscribe(
                                T,
                                MessageSelector.bySql(
                                        "(n BETWEEN 3 AND 6 OR colour IN ('red','green')) AND TAGS"
                                                + " = 'sql' AND colour IS NOT NULL"));
                    } catch (Exception e) {
                        throw new RuntimeException(e);
                    }
                });
        DefaultMQProducer p = producer(c);
        for (int i = 0; i < 10; i++) {
            Message m = msg(T, "sql", id + "-" + i);
            m.putUserProperty("n", "" + i);
            if (i != 4) m.putUserProperty("colour", i == 9 ? "red" : "blue");
            p.send(m);
        }
        s.await(id, 4, 40);
        Thread.sleep(500);
        List<String> got = s.bodies(id);
        Collections.sort(got);
        check(got.equals(Arrays.asList(id + "-3", id + "-5", id + "-6", id + "-9")), got);
        DefaultMQPushConsumer bad = bare("G_sqlbad" + id);
        // a wrong expression is refused by the broker at heartbeat / check time
        bad.subscribe(T, MessageSelector.bySql("n >>> 3"));
        bad.registerMessageListener(
                (MessageListenerConcurrently)
                        (ms, ctx) -> ConsumeConcurrentlyStatus.CONSUME_SUCCESS);
        try {
            bad.start();
            bad.shutdown();
            throw new AssertionError("wrong SQL accepted");
        } catch (MQClientException e) {
            bad.shutdown();
        }
    }

    static void orderly(Closer c) throws Exception {
        String id = rid();
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        DefaultMQPushConsumer x =
                push(
                        c,
                        "G_ord" + id,
                        "KitOrder",
                        "ord",
                        null,
                        q ->
                                q.registerMessageListener(
                                        (MessageListenerOrderly)
                                                (ms, ctx) -> {
                                                    for (MessageExt m : ms)
                                                        if (new String(m.getBody()).startsWith(id))
                                                            got.add(new String(m.getBody()));
                                                    return ConsumeOrderlyStatus.SUCCESS;
                                                }));
        DefaultMQProducer p = producer(c);
        for (int i = 0; i < 60; i++)
            p.send(
                    msg("KitOrder", "ord", id + "-k" + i % 6 + "-" + String.format("%03d", i)),
                    new SelectMessageQueueByHash(),
                    "k" + i % 6);
        await(() -> got.size() >= 60, 60, () -> "got " + got.size());
        check(got.size() == 60, "dups " + got.size());
        for (int k = 0; k < 6; k++) {
            String last = "";
            for (String b : got)
                if (b.startsWith(id + "-k" + k + "-")) {
                    check(b.compareTo(last) > 0, b + " after " + last);
                    last = b;
                }
        }
    }

    static void orderlySuspend(Closer c) throws Exception {
        String id = rid();
        List<String> got = Collections.synchronizedList(new ArrayList<>());
        AtomicInteger fails = new AtomicInteger();
        push(
                c,
                "G_ords" + id,
                "KitOrder",
                "ords",
                null,
                q -> {
                    q.setConsumeMessageBatchMaxSize(1);
                    q.registerMessageListener(
                            (MessageListenerOrderly)
                                    (ms, ctx) -> {
                                        for (MessageExt m : ms) {
                                            String b = new String(m.getBody());
                                            if (!b.startsWith(id)) continue;
                                            if (b.endsWith("002") && fails.incrementAndGet() <= 2)
                                                return ConsumeOrderlyStatus
                                                        .SUSPEND_CURRENT_QUEUE_A_MOMENT;
                                            got.add(b);
                                        }
                                        return ConsumeOrderlyStatus.SUCCESS;
                                    });
                });
        DefaultMQProducer p = producer(c);
        for (int i = 0; i < 6; i++)
            p.send(
                    msg("KitOrder", "ords", id + "-" + String.format("%03d", i)),
                    new SelectMessageQueueByHash(),
                    id);
        await(() -> got.size() >= 6, 60, () -> "got " + got);
        List<String> sorted = new ArrayList<>(got);
        Collections.sort(sorted);
        check(sorted.equals(got) && fails.get() == 3, got + " " + fails);
    }

    static void rebalance(Closer c) throws Exception {
        String id = rid(), g = "G_reb" + id;
        Sink a = new Sink(), b = new Sink();
        push(c, g, T, "reb", a);
        DefaultMQPushConsumer second = push(c, g, T, "reb", b);
        DefaultMQAdminExt ad = admin(c);
        await(
                () -> {
                    try {
                        return ad.examineConsumerConnectionInfo(g).getConnectionSet().size() == 2;
                    } catch (Exception e) {
                        return false;
                    }
                },
                40,
                () -> "not two connections");
        DefaultMQProducer p = producer(c);
        String[] k = {""};
        int round = 0;
        while (true) { // until both got something of one round
            k[0] = id + "-" + round + "-";
            for (int i = 0; i < 16; i++) p.send(msg(T, "reb", k[0] + i));
            await(
                    () -> a.of(k[0]).size() + b.of(k[0]).size() >= 16,
                    60,
                    () -> a.of(k[0]).size() + " + " + b.of(k[0]).size());
            if (a.of(k[0]).size() > 0 && b.of(k[0]).size() > 0) break;
            check(round++ < 15, "one consumer gets everything");
            Thread.sleep(2000);
        }
        second.shutdown();
        String z = id + "-z-";
        for (int i = 0; i < 16; i++) p.send(msg(T, "reb", z + i));
        await(
                () -> new HashSet<>(a.bodies(z)).size() == 16,
                60,
                () -> "after the second left: " + a.of(z).size());
    }

    static void broadcasting(Closer c) throws Exception {
        String id = rid(), g = "G_bc" + id;
        Sink a = new Sink(), b = new Sink();
        push(c, g, T, "bc", a, Compat::broadcast);
        push(c, g, T, "bc", b, Compat::broadcast);
        DefaultMQProducer p = producer(c);
        Thread.sleep(2000);
        for (int i = 0; i < 10; i++) p.send(msg(T, "bc", id + "-" + i));
        a.await(id, 10, 40);
        b.await(id, 10, 40);
    }

    static void retryDlq(Closer c) throws Exception {
        String id = rid(), g = "G_dlq" + id;
        List<Integer> times = Collections.synchronizedList(new ArrayList<>());
        push(
                c,
                g,
                T,
                "dlq",
                null,
                q -> {
                    q.setMaxReconsumeTimes(2);
                    q.registerMessageListener(
                            (MessageListenerConcurrently)
                                    (ms, ctx) -> {
                                        for (MessageExt m : ms)
                                            if (new String(m.getBody()).startsWith(id)) {
                                                times.add(m.getReconsumeTimes());
                                                check(m.getTopic().equals(T), m.getTopic());
                                                ctx.setDelayLevelWhenNextConsume(1);
                                                return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                                            }
                                        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                                    });
                });
        SendResult r = producer(c).send(msg(T, "dlq", id + "-d"));
        await(() -> times.size() >= 3, 60, () -> "attempts " + times);
        check(times.equals(Arrays.asList(0, 1, 2)), times);
        DefaultMQPullConsumer pc = puller(c, "G_dlqr" + id);
        await(
                () -> {
                    try {
                        for (MessageQueue q : pc.fetchSubscribeMessageQueues("%DLQ%" + g)) {
                            PullResult x = pc.pull(q, "*", 0, 8);
                            if (x.getPullStatus() == PullStatus.FOUND)
                                for (MessageExt m : x.getMsgFoundList())
                                    if (new String(m.getBody()).startsWith(id)) return true;
                        }
                        return false;
                    } catch (Exception e) {
                        return false;
                    }
                },
                60,
                () -> "not in the DLQ");
    }

    static void fromTimestamp(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        DefaultMQProducer p = producer(c);
        for (int i = 0; i < 8; i++) p.send(msg(T, "ts", id + "-old" + i));
        Thread.sleep(2500);
        String at = new SimpleDateFormat("yyyyMMddHHmmss").format(new Date());
        Thread.sleep(1200);
        for (int i = 0; i < 8; i++) p.send(msg(T, "ts", id + "-new" + i));
        Thread.sleep(1000);
        push(
                c,
                "G_ts" + id,
                T,
                "ts",
                s,
                q -> {
                    q.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_TIMESTAMP);
                    q.setConsumeTimestamp(at);
                });
        s.await(id + "-new", 8, 40);
        Thread.sleep(1000);
        // The Java broker answers offset 0 for a fresh group while a queue's min offset is 0 and
        // its head is in memory,
        // so on a young queue the old ones come as well; the exact border is checked through
        // searchOffset.
        DefaultMQPullConsumer pc = puller(c, "G_tsp" + id);
        long ms = new SimpleDateFormat("yyyyMMddHHmmss").parse(at).getTime();
        int seen = 0;
        for (MessageQueue q : pc.fetchSubscribeMessageQueues(T)) {
            long o = pc.searchOffset(q, ms);
            PullResult r = pc.pull(q, "ts", o, 32);
            if (r.getPullStatus() == PullStatus.FOUND)
                for (MessageExt m : r.getMsgFoundList()) {
                    String b = new String(m.getBody());
                    if (b.startsWith(id)) {
                        check(!b.contains("-old"), b);
                        seen++;
                    }
                }
        }
        check(seen == 8, "by searchOffset " + seen);
    }
}
