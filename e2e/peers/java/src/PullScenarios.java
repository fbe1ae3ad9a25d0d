import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/** Scenarios of pull and lite pull consumers. Client lines 4.9 and 5.x share them. */
class PullScenarios extends Kit {
    static void add() {
        SC.put("lite_pull_subscribe", PullScenarios::litePull);
        SC.put("lite_pull_assign_seek", PullScenarios::litePullAssign);
        SC.put("pull_consumer_offsets", PullScenarios::pull);
        SC.put("pull_long_poll", PullScenarios::longPoll);
    }

    static DefaultLitePullConsumer lite(String g) {
        DefaultLitePullConsumer l = new DefaultLitePullConsumer(null, g, hook());
        l.setNamesrvAddr(NS);
        l.setInstanceName(inst());
        l.setVipChannelEnabled(false);
        l.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        return l;
    }

    static void litePull(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        DefaultLitePullConsumer l = lite("G_lite" + id);
        l.subscribe(T, "lite");
        l.setAutoCommit(false);
        l.start();
        c.on(l, l::shutdown);
        DefaultMQProducer p = producer(c);
        for (int i = 0; i < 10; i++) p.send(msg(T, "lite", id + "-" + i));
        long end = System.currentTimeMillis() + 40000L * SLOW;
        while (s.of(id).size() < 10 && System.currentTimeMillis() < end) {
            s.all.addAll(l.poll(1000));
            l.commitSync();
        }
        check(s.of(id).size() == 10, s.bodies(id));
    }

    static void litePullAssign(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        DefaultLitePullConsumer l = lite("G_liteA" + id);
        l.start();
        c.on(l, l::shutdown);
        List<MessageQueue> qs = new ArrayList<>(l.fetchMessageQueues(T));
        check(qs.size() >= 4, qs);
        MessageQueue q = qs.get(0);
        DefaultMQProducer p = producer(c);
        // Other scenarios send to this queue as well, so offsets have gaps.
        List<Long> offsets = new ArrayList<>();
        for (int i = 0; i < 6; i++)
            offsets.add(p.send(msg(T, "liteA", id + "-" + i), q).getQueueOffset());
        l.assign(Collections.singletonList(q));
        l.seek(q, offsets.get(3));
        long end = System.currentTimeMillis() + 40000L * SLOW;
        while (s.of(id).size() < 3 && System.currentTimeMillis() < end) s.all.addAll(l.poll(1000));
        check(s.bodies(id).equals(Arrays.asList(id + "-3", id + "-4", id + "-5")), s.bodies(id));
        check(
                l.offsetForTimestamp(q, System.currentTimeMillis() + 3600000)
                        > offsets.get(5),
                "offsetForTimestamp");
    }

    static void pull(Closer c) throws Exception {
        String id = rid();
        DefaultMQPullConsumer pc = puller(c, "G_pull" + id);
        DefaultMQProducer p = producer(c);
        MessageQueue q = pc.fetchSubscribeMessageQueues(T).iterator().next();
        // In this order: other scenarios send to this queue meanwhile.
        long max0 = pc.maxOffset(q);
        Thread.sleep(20);
        long before = System.currentTimeMillis();
        SendResult r = null;
        for (int i = 0; i < 5; i++) {
            SendResult x = p.send(msg(T, "pull", id + "-" + i), q);
            if (r == null) r = x;
        }
        await(
                () -> {
                    try {
                        return pc.maxOffset(q) >= max0 + 5;
                    } catch (Exception e) {
                        return false;
                    }
                },
                20,
                () -> "maxOffset");
        check(pc.minOffset(q) <= max0, "min");
        check(pc.earliestMsgStoreTime(q) > 0, "earliest");
        long so = pc.searchOffset(q, before);
        check(
                so <= r.getQueueOffset() && so >= max0,
                "searchOffset " + so + " first " + r.getQueueOffset());
        PullResult pr = pc.pull(q, "pull", r.getQueueOffset(), 32);
        check(pr.getPullStatus() == PullStatus.FOUND, pr);
        check(
                pr.getMinOffset() >= 0
                        && pr.getMaxOffset() >= max0 + 5
                        && pr.getNextBeginOffset() > r.getQueueOffset(),
                pr);
        check(
                pc.pull(q, "*", pr.getMaxOffset() + 1000, 1).getPullStatus()
                        == PullStatus.OFFSET_ILLEGAL,
                "illegal offset");
        pc.updateConsumeOffset(q, r.getQueueOffset() + 2);
        pc.getOffsetStore().persist(q);
        await(
                () -> {
                    try {
                        return pc.fetchConsumeOffset(q, true) == max0 + 2
                                || pc.fetchConsumeOffset(q, true) >= 2;
                    } catch (Exception e) {
                        return false;
                    }
                },
                20,
                () -> "persisted offset");
    }

    static void longPoll(Closer c) throws Exception {
        String id = rid();
        DefaultMQPullConsumer pc = puller(c, "G_lp" + id);
        DefaultMQProducer p = producer(c);
        String top = "KitPop";
        MessageQueue q = pc.fetchSubscribeMessageQueues(top).iterator().next();
        long off = pc.maxOffset(q);
        ScheduledExecutorService ex = Executors.newSingleThreadScheduledExecutor();
        c.on(ex, ex::shutdownNow);
        long t0 = System.currentTimeMillis();
        ex.schedule(() -> p.send(msg(top, "lp", id + "-1"), q), 2, TimeUnit.SECONDS);
        PullResult r = pc.pullBlockIfNotFound(q, "*", off, 8);
        long d = System.currentTimeMillis() - t0;
        check(
                r.getPullStatus() == PullStatus.FOUND && d > 1500 && d < 2000 + 4000L * SLOW,
                r.getPullStatus() + " after " + d);
    }
}
