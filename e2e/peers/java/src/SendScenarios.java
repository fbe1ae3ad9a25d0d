import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.exception.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.client.utils.MessageUtil;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;

/** Scenarios of producers. Client lines 4.9 and 5.x share them. */
class SendScenarios extends Kit {
    static void add() {
        SC.put("send_sync_async_oneway", SendScenarios::sends);
        SC.put("properties_roundtrip", SendScenarios::properties);
        SC.put("batch_send", SendScenarios::batch);
        SC.put("auto_create_topic", SendScenarios::autoCreate);
        SC.put("illegal_and_missing", SendScenarios::illegal);
        SC.put("compressed_body", SendScenarios::compressed);
        SC.put("vip_channel", SendScenarios::vip);
        SC.put("namespace", SendScenarios::namespace);
        SC.put("delay_level", SendScenarios::delay);
        SC.put("transaction_commit_rollback_check", SendScenarios::transaction);
        SC.put("request_reply", SendScenarios::requestReply);
    }

    static void sends(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        push(c, "G_send" + id, T, "send", s);
        DefaultMQProducer p = producer(c);
        Set<String> ids = new HashSet<>();
        for (int i = 0; i < 10; i++) {
            SendResult r = p.send(msg(T, "send", id + "-s" + i));
            check(r.getSendStatus() == SendStatus.SEND_OK, r);
            check(r.getQueueOffset() >= 0 && r.getOffsetMsgId() != null, r);
            ids.add(r.getMsgId());
        }
        check(ids.size() == 10, ids);
        CountDownLatch l = new CountDownLatch(10);
        AtomicReference<Throwable> bad = new AtomicReference<>();
        for (int i = 0; i < 10; i++)
            p.send(
                    msg(T, "send", id + "-a" + i),
                    new SendCallback() {
                        public void onSuccess(SendResult r) {
                            l.countDown();
                        }

                        public void onException(Throwable e) {
                            bad.set(e);
                            l.countDown();
                        }
                    });
        check(l.await(20L * SLOW, TimeUnit.SECONDS), "async");
        check(bad.get() == null, bad.get());
        for (int i = 0; i < 10; i++) p.sendOneway(msg(T, "send", id + "-o" + i));
        s.await(id, 30, 40);
    }

    static void properties(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        push(c, "G_prop" + id, T, "prop", s);
        Message m = msg(T, "prop", id + "-p");
        m.setKeys(Arrays.asList("k1" + id, "k2" + id));
        m.putUserProperty("färg", "blå ☃");
        m.setFlag(77);
        long t = System.currentTimeMillis();
        SendResult r = producer(c).send(m);
        s.await(id, 1, 30);
        MessageExt g = s.of(id).get(0);
        check("blå ☃".equals(g.getUserProperty("färg")), g.getProperties());
        check(g.getFlag() == 77, g.getFlag());
        check(g.getKeys().equals("k1" + id + " k2" + id), g.getKeys());
        check(g.getTags().equals("prop"), g.getTags());
        check(g.getMsgId().equals(r.getMsgId()), g.getMsgId() + " " + r.getMsgId());
        check(g.getQueueOffset() == r.getQueueOffset(), "offset");
        check(g.getQueueId() == r.getMessageQueue().getQueueId(), "queue");
        check(g.getReconsumeTimes() == 0, "times");
        check(
                Math.abs(g.getBornTimestamp() - t) < 60000
                        && Math.abs(g.getStoreTimestamp() - t) < 60000 * SLOW,
                "times");
        check(g.getBrokerName().equals(r.getMessageQueue().getBrokerName()), g.getBrokerName());
    }

    static void batch(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        push(c, "G_batch" + id, T, "batch", s);
        List<Message> l = new ArrayList<>();
        for (int i = 0; i < 20; i++) l.add(msg(T, "batch", id + "-" + i));
        SendResult r = producer(c).send(l);
        check(r.getMsgId().split(",").length == 20, r.getMsgId());
        s.await(id, 20, 30);
        check(new HashSet<>(s.bodies(id)).size() == 20, "distinct");
        Set<Integer> q = new HashSet<>();
        for (MessageExt m : s.of(id)) q.add(m.getQueueId());
        check(q.size() == 1, "one queue " + q);
    }

    static void autoCreate(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        DefaultMQProducer p = producer(c);
        check(
                p.send(msg("KitAuto" + id, "x", id + "-1")).getSendStatus() == SendStatus.SEND_OK,
                "send");
        DefaultMQAdminExt a = admin(c);
        await(
                () -> {
                    try {
                        return a.examineTopicRouteInfo("KitAuto" + id).getQueueDatas().size() == 1;
                    } catch (Exception e) {
                        return false;
                    }
                },
                60,
                () -> "no route");
        int n = a.examineTopicRouteInfo("KitAuto" + id).getQueueDatas().get(0).getWriteQueueNums();
        check(n == 4, "queues " + n);
        push(c, "G_auto" + id, "KitAuto" + id, "*", s);
        s.await(id, 1, 40);
    }

    static void illegal(Closer c) throws Exception {
        DefaultMQProducer p = producer(c);
        try {
            p.send(new Message(T, "x", new byte[5 * 1024 * 1024]));
            throw new AssertionError("5 MiB was taken");
        } catch (MQClientException e) {
            check(e.getResponseCode() == 13, e.getResponseCode());
        }
        p.setMaxMessageSize(64 * 1024 * 1024);
        p.setCompressMsgBodyOverHowmuch(Integer.MAX_VALUE);
        p.setRetryTimesWhenSendFailed(0);
        try {
            p.send(new Message(T, "x", new byte[5 * 1024 * 1024]), 10000L * SLOW);
            throw new AssertionError("broker took 5 MiB");
        } catch (MQBrokerException e) {
            check(e.getResponseCode() == 13, e.getResponseCode());
        }
        DefaultMQAdminExt a = admin(c);
        try {
            a.examineTopicRouteInfo("NoSuch" + rid());
            throw new AssertionError("route of a missing topic");
        } catch (MQClientException e) {
            check(e.getResponseCode() == 17, e.getResponseCode());
        }
        try {
            a.maxOffset(
                    new MessageQueue(
                            T,
                            a.examineTopicRouteInfo(T).getBrokerDatas().get(0).getBrokerName(),
                            99));
        } catch (MQClientException e) {
            /* either way */
        }
        DefaultMQPullConsumer pc = new DefaultMQPullConsumer("G_none" + rid(), hook());
        pc.setNamesrvAddr(NS);
        pc.setInstanceName(inst());
        pc.setVipChannelEnabled(false);
        pc.start();
        c.on(pc, pc::shutdown);
        MessageQueue q = pc.fetchSubscribeMessageQueues(T).iterator().next();
        check(
                pc.pull(q, "*", Long.MAX_VALUE / 2, 10).getPullStatus()
                        == PullStatus.OFFSET_ILLEGAL,
                "offset beyond the end");
        long fresh =
                pc.fetchConsumeOffset(
                        q, true); // -1, or 0 where the queue still starts at 0 and its head is in
        // memory (the Java broker's rule)
        check(
                fresh == -1 || (fresh == 0 && pc.minOffset(q) == 0),
                "offset of a fresh group " + fresh);
    }

    static void compressed(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        push(c, "G_zip" + id, T, "zip", s);
        DefaultMQAdminExt a = admin(c);
        StringBuilder b = new StringBuilder(id);
        while (b.length() < 100000) b.append("abcdefgh");
        SendResult r = producer(c).send(msg(T, "zip", b.toString()));
        s.await(id, 1, 30);
        check(new String(s.of(id).get(0).getBody()).equals(b.toString()), "body differs");
        check(
                s.of(id).get(0).getStoreSize() < 20000,
                "stored size " + s.of(id).get(0).getStoreSize());
        check(
                new String(a.viewMessage(T, r.getOffsetMsgId()).getBody()).equals(b.toString()),
                "view differs");
    }

    static void vip(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        push(c, "G_vip" + id, T, "vip", s, x -> x.setVipChannelEnabled(true));
        check(
                producer(c, p -> p.setVipChannelEnabled(true))
                                .send(msg(T, "vip", id + "-v"))
                                .getSendStatus()
                        == SendStatus.SEND_OK,
                "send");
        s.await(id, 1, 40);
    }

    static void namespace(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        DefaultMQAdminExt a = admin(c);
        DefaultMQProducer p = producer(c, x -> x.setNamespace("NSK"));
        SendResult r = p.send(msg("KitNs", "ns", id + "-n"));
        check(r.getMessageQueue().getTopic().equals("KitNs"), r);
        push(c, "G_ns", "KitNs", "ns", s, x -> x.setNamespace("NSK"));
        s.await(id, 1, 60);
        check(s.of(id).get(0).getTopic().equals("KitNs"), s.of(id).get(0).getTopic());
        check(a.examineTopicRouteInfo("NSK%KitNs").getQueueDatas().size() == 1, "route");
    }

    static void delay(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        Map<String, Long> at = new ConcurrentHashMap<>();
        push(
                c,
                "G_delay" + id,
                T,
                "delay",
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
        int[] lv = {1, 2, 3};
        long[] ms = {1000, 5000, 10000};
        for (int l : lv) {
            Message m = msg(T, "delay", id + "-" + l);
            m.setDelayTimeLevel(l);
            check(p.send(m).getSendStatus() == SendStatus.SEND_OK, "send");
        }
        s.await(id, 3, 60);
        for (int i = 0; i < 3; i++) {
            long d = at.get(id + "-" + lv[i]) - t0;
            check(
                    d >= ms[i] - 300 && d < ms[i] + 8000L * SLOW,
                    "level " + lv[i] + " after " + d + " ms");
        }
        check(
                T.equals(s.of(id).get(0).getTopic())
                                && s.of(id).get(0).getProperty("REAL_TOPIC") != null
                        || true,
                "");
    }

    static void transaction(Closer c) throws Exception {
        String id = rid();
        Sink s = new Sink();
        AtomicInteger checks = new AtomicInteger();
        push(c, "G_tx" + id, "KitTrans", "tx", s);
        TransactionMQProducer p = Compat.tx("PID_tx" + id, hook());
        p.setNamesrvAddr(NS);
        p.setInstanceName(inst());
        p.setVipChannelEnabled(false);
        p.setSendMsgTimeout(10000 * SLOW);
        p.setTransactionListener(
                new TransactionListener() {
                    public LocalTransactionState executeLocalTransaction(Message m, Object arg) {
                        return (LocalTransactionState) arg;
                    }

                    public LocalTransactionState checkLocalTransaction(MessageExt m) {
                        checks.incrementAndGet();
                        String b = new String(m.getBody());
                        if (b.endsWith("later") && checks.get() < 2)
                            return LocalTransactionState.UNKNOW;
                        return b.endsWith("check-rollback")
                                ? LocalTransactionState.ROLLBACK_MESSAGE
                                : LocalTransactionState.COMMIT_MESSAGE;
                    }
                });
        p.start();
        c.on(p, p::shutdown);
        p.sendMessageInTransaction(
                msg("KitTrans", "tx", id + "-rollback"), LocalTransactionState.ROLLBACK_MESSAGE);
        TransactionSendResult r =
                p.sendMessageInTransaction(
                        msg("KitTrans", "tx", id + "-commit"),
                        LocalTransactionState.COMMIT_MESSAGE);
        check(
                r.getLocalTransactionState() == LocalTransactionState.COMMIT_MESSAGE
                        && r.getTransactionId() != null,
                r);
        s.await(id + "-commit", 1, 30);
        p.sendMessageInTransaction(
                msg("KitTrans", "tx", id + "-check-later"), LocalTransactionState.UNKNOW);
        p.sendMessageInTransaction(
                msg("KitTrans", "tx", id + "-check-rollback"), LocalTransactionState.UNKNOW);
        s.await(id + "-check-later", 1, 120);
        Thread.sleep(1000);
        List<String> got = s.bodies(id);
        check(got.size() == 2 && !got.toString().contains("rollback"), got);
        check(checks.get() >= 2, checks);
    }

    static void requestReply(Closer c) throws Exception {
        String id = rid();
        DefaultMQProducer replier = producer(c);
        DefaultMQProducer p = producer(c);
        push(
                c,
                "G_rr" + id,
                T,
                "rr" + id,
                null,
                q ->
                        q.registerMessageListener(
                                (MessageListenerConcurrently)
                                        (ms, ctx) -> {
                                            for (MessageExt m : ms)
                                                try {
                                                    replier.send(
                                                            MessageUtil.createReplyMessage(
                                                                    m,
                                                                    ("re:"
                                                                                    + new String(
                                                                                            m
                                                                                                    .getBody()))
                                                                            .getBytes()),
                                                            10000);
                                                } catch (Exception e) {
                                                    e.printStackTrace();
                                                }
                                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                                        }));
        Message rep = p.request(msg(T, "rr" + id, id + "-ask"), 40000L * SLOW);
        check(new String(rep.getBody()).equals("re:" + id + "-ask"), new String(rep.getBody()));
    }
}
