import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/** Scenarios of the 5.x remoting client only. */
class FiveScenarios extends Kit {
    static void add() {
        SC.put("timer_message", FiveScenarios::timer);
        SC.put("timer_recall", FiveScenarios::recall);
        SC.put("pop_consume", FiveScenarios::pop);
        SC.put("pop_retry", FiveScenarios::popRetry);
        SC.put("auto_batch", FiveScenarios::autoBatch);
        SC.put("message_type_check", FiveScenarios::typeCheck);
        SC.put("admin_config_tables", FiveScenarios::adminTables);
    }

    static void timer(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        Map<String, Long> at = new ConcurrentHashMap<>();
        push(
                c,
                "G_timer" + id,
                T,
                "timer",
                s,
                q ->
                        q.registerMessageListener(
                                (MessageListenerConcurrently)
                                        (ms, ctx) -> {
                                            for (MessageExt m : ms)
                                                at.put(
                                                        new String(m.getBody()),
                                                        System.currentTimeMillis());
                                            s.all.addAll(ms);
                                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                                        }));
        DefaultMQProducer p = producer(c);
        long t0 = System.currentTimeMillis();
        Message a = msg(T, "timer", id + "-deliverAt");
        a.setDeliverTimeMs(t0 + 7000);
        p.send(a);
        Message b = msg(T, "timer", id + "-delayMs");
        b.setDelayTimeMs(4000);
        p.send(b);
        Message d = msg(T, "timer", id + "-delaySec");
        d.setDelayTimeSec(5);
        p.send(d);
        s.await(id, 3, 60);
        Map<String, Long> want = new HashMap<>();
        want.put("deliverAt", 7000L);
        want.put("delayMs", 4000L);
        want.put("delaySec", 5000L);
        for (Map.Entry<String, Long> e : want.entrySet()) {
            long x = at.get(id + "-" + e.getKey()) - t0;
            check(
                    x >= e.getValue() - 1100 && x < e.getValue() + 8000L * SLOW,
                    e.getKey() + " after " + x + " ms");
        }
        Message far = msg(T, "timer", id + "-far");
        far.setDeliverTimeMs(t0 + 10L * 24 * 3600 * 1000);
        try {
            p.send(far);
            throw new AssertionError("10 days ahead was taken (timerMaxDelaySec is 3 days)");
        } catch (MQBrokerException e) {
            check(e.getResponseCode() == 13, e.getResponseCode());
        }
    }

    static void recall(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        push(c, "G_recall" + id, T, "recall", s);
        DefaultMQProducer p = producer(c);
        Message m = msg(T, "recall", id + "-r");
        m.setDeliverTimeMs(System.currentTimeMillis() + 12000);
        SendResult r = p.send(m);
        check(r.getRecallHandle() != null, r);
        check(p.recallMessage(T, r.getRecallHandle()) != null, "recall");
        Thread.sleep(20000);
        check(s.of(id).isEmpty(), "recalled message came");
    }

    static void setPop(Closer c, String g) throws Exception {
        DefaultMQAdminExt a = admin(c);
        a.setMessageRequestMode(
                brokerAddr(a),
                "KitPop",
                g,
                org.apache.rocketmq.common.message.MessageRequestMode.POP,
                8,
                5000L * SLOW);
    }

    static void pop(Closer c) throws Exception {
        String id = rid(), g = "G_pop" + id;
        Sink s = new Sink();
        setPop(c, g);
        push(c, g, "KitPop", "*", s, x -> x.setClientRebalance(false));
        DefaultMQProducer p = producer(c);
        for (int i = 0; i < 20; i++) p.send(msg("KitPop", "pop", id + "-" + i));
        s.await(id, 20, 60);
        Thread.sleep(2000);
        check(s.of(id).size() == 20, "dups " + s.of(id).size());
        check(s.of(id).get(0).getProperty("POP_CK") != null, "no POP_CK: not in pop mode");
    }

    static void popRetry(Closer c) throws Exception {
        String id = rid(), g = "G_popr" + id;
        setPop(c, g);
        List<Integer> times = Collections.synchronizedList(new ArrayList<>());
        push(
                c,
                g,
                "KitPop",
                "*",
                null,
                x -> {
                    x.setClientRebalance(false);
                    x.registerMessageListener(
                            (MessageListenerConcurrently)
                                    (ms, ctx) -> {
                                        for (MessageExt m : ms)
                                            if (new String(m.getBody()).startsWith(id)) {
                                                times.add(m.getReconsumeTimes());
                                                if (times.size() < 2)
                                                    return ConsumeConcurrentlyStatus
                                                            .RECONSUME_LATER;
                                            }
                                        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                                    });
                });
        producer(c).send(msg("KitPop", "pop", id + "-r"));
        await(() -> times.size() >= 2, 120, () -> "attempts " + times);
        check(times.get(1) >= 1, times);
    }

    static void autoBatch(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        push(c, "G_ab" + id, T, "ab", s);
        DefaultMQProducer p =
                producer(
                        c,
                        x -> {
                            x.setAutoBatch(true);
                        });
        for (int i = 0; i < 20; i++) p.send(msg(T, "ab", id + "-" + i));
        s.await(id, 20, 40);
    }

    static void typeCheck(Closer c) throws Exception {
        DefaultMQAdminExt a = admin(c);
        TopicConfig t = a.examineTopicConfig(brokerAddr(a), "KitFifo");
        check("FIFO".equals(t.getAttributes().get("message.type")), t.getAttributes());
    }

    static void adminTables(Closer c) throws Exception {
        DefaultMQAdminExt a = admin(c);
        String addr = brokerAddr(a);
        check(a.getBrokerConfig(addr).size() > 100, "config size");
        check(
                a.fetchBrokerRuntimeStats(addr).getTable().containsKey("brokerVersionDesc"),
                "runtime stats");
        check(
                a.getAllSubscriptionGroup(addr, 10000L * SLOW).getSubscriptionGroupTable().size()
                        > 0,
                "groups");
        check(
                a.getAllTopicConfig(addr, 10000L * SLOW)
                        .getTopicConfigTable()
                        .containsKey("KitPop"),
                "topics");
    }
}
