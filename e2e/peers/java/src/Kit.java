import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.consumer.*;
import org.apache.rocketmq.client.consumer.listener.*;
import org.apache.rocketmq.client.producer.*;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.*;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.function.*;

/**
 * Shared harness: env, producers, consumers with a sink, and the runner. Works with client 4.9.x
 * and 5.x.
 */
class Kit {
    static final String NS = System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876");
    static final String ONLY = System.getenv().getOrDefault("ONLY", "");
    static final String AK = System.getenv().getOrDefault("ACCESS_KEY", ""),
            SK = System.getenv().getOrDefault("SECRET_KEY", "");
    static final int SLOW =
            Integer.parseInt(
                    System.getenv().getOrDefault("SLOW", "1")); // factor on every time limit
    static final String T = "KitRemoting";
    static final AtomicInteger SEQ = new AtomicInteger();
    static final String RUN = Long.toHexString(System.currentTimeMillis());

    static RPCHook hook() {
        return AK.isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(AK, SK));
    }

    static String rid() {
        return RUN + "x" + SEQ.incrementAndGet();
    }

    static String inst() {
        return "kit" + RUN + "-" + SEQ.incrementAndGet();
    }

    interface Body {
        void run(Closer c) throws Exception;
    }

    static class Closer {
        final Deque<Runnable> d = new ArrayDeque<>();

        <X> X on(X x, Runnable r) {
            d.push(r);
            return x;
        }

        void close() {
            while (!d.isEmpty())
                try {
                    d.pop().run();
                } catch (Throwable ignored) {
                }
        }
    }

    static DefaultMQProducer producer(Closer c) throws Exception {
        return producer(c, p -> {});
    }

    static DefaultMQProducer producer(Closer c, Consumer<DefaultMQProducer> cfg) throws Exception {
        DefaultMQProducer p = new DefaultMQProducer("PID_kit", hook());
        p.setNamesrvAddr(NS);
        p.setInstanceName(inst());
        p.setSendMsgTimeout(10000 * SLOW);
        p.setVipChannelEnabled(false);
        cfg.accept(p);
        p.start();
        return c.on(p, p::shutdown);
    }

    static class Sink {
        final List<MessageExt> all = Collections.synchronizedList(new ArrayList<>());

        List<MessageExt> of(String prefix) {
            List<MessageExt> r = new ArrayList<>();
            synchronized (all) {
                for (MessageExt m : all) if (new String(m.getBody()).startsWith(prefix)) r.add(m);
            }
            return r;
        }

        List<String> bodies(String prefix) {
            List<String> r = new ArrayList<>();
            for (MessageExt m : of(prefix)) r.add(new String(m.getBody()));
            return r;
        }

        void await(String prefix, int n, int secs) throws Exception {
            Kit.await(
                    () -> of(prefix).size() >= n,
                    secs,
                    () -> "got " + of(prefix).size() + " of " + n + " " + bodies(prefix));
        }
    }

    static void await(BooleanSupplier ok, int secs, Supplier<String> why) throws Exception {
        long end = System.currentTimeMillis() + secs * 1000L * SLOW;
        while (System.currentTimeMillis() < end) {
            if (ok.getAsBoolean()) return;
            Thread.sleep(50);
        }
        throw new AssertionError("not in " + secs * SLOW + " s: " + why.get());
    }

    static void check(boolean b, Object why) {
        if (!b) throw new AssertionError(String.valueOf(why));
    }

    static DefaultMQPushConsumer bare(String group) {
        DefaultMQPushConsumer c =
                new DefaultMQPushConsumer(
                        null,
                        group,
                        hook(),
                        new org.apache.rocketmq.client.consumer.rebalance
                                .AllocateMessageQueueAveragely());
        c.setNamesrvAddr(NS);
        c.setInstanceName(inst());
        c.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        c.setVipChannelEnabled(false);
        return c;
    }

    static DefaultMQPushConsumer push(Closer cl, String group, String topic, String tag, Sink s)
            throws Exception {
        return push(cl, group, topic, tag, s, c -> {});
    }

    static DefaultMQPushConsumer push(
            Closer cl,
            String group,
            String topic,
            String tag,
            Sink s,
            Consumer<DefaultMQPushConsumer> cfg)
            throws Exception {
        DefaultMQPushConsumer c = bare(group);
        cfg.accept(c);
        if (tag != null) c.subscribe(topic, tag);
        if (c.getMessageListener() == null)
            c.registerMessageListener(
                    (MessageListenerConcurrently)
                            (ms, ctx) -> {
                                s.all.addAll(ms);
                                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                            });
        c.start();
        return cl.on(c, c::shutdown);
    }

    static DefaultMQAdminExt admin(Closer c) throws Exception {
        DefaultMQAdminExt a = new DefaultMQAdminExt(hook(), 10000L * SLOW);
        a.setNamesrvAddr(NS);
        a.setInstanceName(inst());
        a.setAdminExtGroup("adm" + inst());
        a.setVipChannelEnabled(false);
        a.start();
        return c.on(a, a::shutdown);
    }

    static String brokerAddr(DefaultMQAdminExt a) throws Exception {
        return a.examineTopicRouteInfo(T).getBrokerDatas().get(0).getBrokerAddrs().get(0L);
    }

    static Message msg(String topic, String tag, String body) {
        return new Message(topic, tag, body.getBytes());
    }

    static DefaultMQPullConsumer puller(Closer c, String g) throws Exception {
        DefaultMQPullConsumer pc = new DefaultMQPullConsumer(g, hook());
        pc.setNamesrvAddr(NS);
        pc.setInstanceName(inst());
        pc.setVipChannelEnabled(false);
        pc.start();
        return c.on(pc, pc::shutdown);
    }

    static final Map<String, Body> SC = new LinkedHashMap<>();

    static void run() throws Exception {
        int par = Integer.parseInt(System.getenv().getOrDefault("PAR", "4"));
        ExecutorService ex = Executors.newFixedThreadPool(par);
        AtomicInteger pass = new AtomicInteger(), fail = new AtomicInteger();
        List<Future<?>> all = new ArrayList<>();
        for (Map.Entry<String, Body> e : SC.entrySet()) {
            if (!ONLY.isEmpty() && !e.getKey().matches(ONLY)) continue;
            all.add(
                    ex.submit(
                            () -> {
                                long t0 = System.currentTimeMillis();
                                Throwable bad = one(e.getValue());
                                (bad == null ? pass : fail).incrementAndGet();
                                String result =
                                        bad == null
                                                ? "ok " + e.getKey()
                                                : "not ok " + e.getKey() + ": " + reason(bad);
                                long ms = System.currentTimeMillis() - t0;
                                System.out.println(result + "  # " + ms + " ms");
                            }));
        }
        for (Future<?> f : all) f.get();
        System.out.println(pass + " passed, " + fail + " failed");
        Runtime.getRuntime().halt(fail.get() > 0 ? 1 : 0);
    }

    /** Runs a scenario under a time limit; returns what went wrong, or null. */
    private static Throwable one(Body body) {
        Closer c = new Closer();
        ExecutorService thread = Executors.newSingleThreadExecutor();
        try {
            Callable<Void> task =
                    () -> {
                        body.run(c);
                        return null;
                    };
            thread.submit(task).get(240L * SLOW, TimeUnit.SECONDS);
            return null;
        } catch (Throwable x) {
            return x instanceof ExecutionException && x.getCause() != null ? x.getCause() : x;
        } finally {
            thread.shutdownNow();
            c.close();
        }
    }

    private static String reason(Throwable bad) {
        String kind = bad instanceof AssertionError ? "" : bad.getClass().getSimpleName() + " ";
        String text = String.valueOf(bad.getMessage()).replace('\n', ' ');
        String at = "";
        for (StackTraceElement s : bad.getStackTrace()) {
            if (!s.getClassName().matches("\\w+Scenarios.*")) continue;
            at = " @" + s.getFileName() + ":" + s.getLineNumber();
            break;
        }
        return kind + text.replaceAll("(.{300}).*", "$1") + at;
    }
}
