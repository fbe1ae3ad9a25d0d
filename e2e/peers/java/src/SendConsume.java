import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;

import java.io.FileOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;

/**
 * Sends numbered messages with the stock producer, consumes them with the stock consumer, and says
 * what became of them.
 *
 * <pre>
 * SendConsume TOPIC COUNT [RATE]
 * </pre>
 *
 * Sends COUNT messages, or while standard input is open when COUNT is 0; RATE is messages a second
 * (0: as fast as it goes). Then waits until every acknowledged message was consumed. Prints
 *
 * <pre>
 * ready
 * broker NAME                           at the first message acknowledged by that broker
 * failed MESSAGE                        for each of the first failed sends
 * progress sent=.. acked=.. failed=.. consumed=..
 * result acked=.. failed=.. consumed=.. lost=.. duplicated=.. longest_pause_ms=.. brokers=a:1,b:2
 * </pre>
 *
 * "failed" counts sends that threw after the client's own retries, or were not acknowledged as
 * SEND_OK; such a message may be stored all the same and is never counted as lost. "longest pause"
 * is the longest time between two acknowledgements. Exits 1 if a message was lost. When ACKED names
 * a file, each acknowledged body is added to it as a line, at once.
 */
public class SendConsume {
    private static final int SENDERS = 4;
    private static final int FIRST_TRIES = 20;
    private static final int FAILURES_SHOWN = 5;
    private static final long DRAIN_LIMIT_MS = 120_000;

    private static final AtomicLong next = new AtomicLong();
    private static final AtomicInteger failed = new AtomicInteger();
    private static final AtomicLong lastAck = new AtomicLong();
    private static final AtomicLong longestPause = new AtomicLong();
    private static final Map<String, Boolean> acked = new ConcurrentHashMap<>();
    private static final Map<String, Integer> consumed = new ConcurrentHashMap<>();
    private static final Map<String, AtomicInteger> brokers = new ConcurrentHashMap<>();
    private static volatile boolean closed;
    private static PrintStream ackedFile;

    public static void main(String[] arguments) throws Exception {
        String file = System.getenv("ACKED");
        if (file != null) ackedFile = new PrintStream(new FileOutputStream(file), true, "UTF-8");
        String topic = arguments[0];
        long count = Long.parseLong(arguments[1]);
        int rate = arguments.length > 2 ? Integer.parseInt(arguments[2]) : 0;
        String namesrv = System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876");
        String run = Long.toHexString(System.currentTimeMillis());

        DefaultMQProducer producer = new DefaultMQProducer("PID_" + run);
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("p" + run);
        producer.start();
        // The first send makes the topic, so that the consumer starts with queues to take. A JVM
        // that starts on a busy machine may need more than one; what counts is sent after "ready".
        for (int i = 0; i < FIRST_TRIES && acked.isEmpty(); i++)
            send(producer, topic, run + "-" + i + "-first");
        failed.set(0);
        DefaultMQPushConsumer consumer = consumer(namesrv, topic, run);
        waitUntilConsumed();
        say("ready");

        if (count == 0) watchStandardInput();
        long began = System.nanoTime();
        lastAck.set(began);
        List<Thread> senders = new ArrayList<>();
        for (int i = 0; i < SENDERS; i++) {
            Thread sender = new Thread(() -> sendAll(producer, topic, run, count, rate, began));
            senders.add(sender);
            sender.start();
        }
        for (Thread sender : senders) {
            while (sender.isAlive()) {
                sender.join(5000);
                progress();
            }
        }
        waitUntilConsumed();
        boolean lossless = result();
        consumer.shutdown();
        producer.shutdown();
        Runtime.getRuntime().halt(lossless ? 0 : 1);
    }

    private static DefaultMQPushConsumer consumer(String namesrv, String topic, String run)
            throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("GID_" + run);
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("c" + run);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            for (MessageExt message : messages) {
                                String body = new String(message.getBody(), StandardCharsets.UTF_8);
                                if (body.startsWith(run)) consumed.merge(body, 1, Integer::sum);
                            }
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        consumer.start();
        return consumer;
    }

    private static void watchStandardInput() {
        Thread watcher =
                new Thread(
                        () -> {
                            try {
                                while (System.in.read() >= 0) continue;
                            } catch (IOException e) {
                                say("# standard input: " + e);
                            }
                            closed = true;
                        });
        watcher.setDaemon(true);
        watcher.start();
    }

    private static void sendAll(
            DefaultMQProducer producer,
            String topic,
            String run,
            long count,
            int rate,
            long began) {
        while (!closed) {
            long number = next.getAndIncrement();
            if (count > 0 && number >= count) return;
            if (rate > 0) {
                long due = began + number * TimeUnit.SECONDS.toNanos(1) / rate;
                long early = due - System.nanoTime();
                if (early > 0) java.util.concurrent.locks.LockSupport.parkNanos(early);
            }
            send(producer, topic, run + "-" + number);
        }
    }

    private static void send(DefaultMQProducer producer, String topic, String body) {
        try {
            byte[] bytes = body.getBytes(StandardCharsets.UTF_8);
            SendResult result = producer.send(new Message(topic, bytes));
            if (result.getSendStatus() != SendStatus.SEND_OK)
                throw new IllegalStateException("status " + result.getSendStatus());
            acked.put(body, true);
            if (ackedFile != null) ackedFile.println(body);
            long now = System.nanoTime();
            long pause = now - lastAck.getAndSet(now);
            if (lastAck.get() > 0 && next.get() > SENDERS)
                longestPause.accumulateAndGet(pause, Math::max);
            String broker = result.getMessageQueue().getBrokerName();
            AtomicInteger of = brokers.computeIfAbsent(broker, name -> new AtomicInteger());
            if (of.incrementAndGet() == 1) say("broker " + broker);
        } catch (Exception e) {
            if (failed.incrementAndGet() <= FAILURES_SHOWN && lastAck.get() > 0)
                say("failed " + body + ": " + reason(e));
        }
    }

    private static String reason(Throwable e) {
        String text = e.getCause() == null ? e.toString() : e + " (" + e.getCause() + ")";
        return text.replaceAll("See https\\S+ for further details\\.|\\s+", " ");
    }

    private static void waitUntilConsumed() throws InterruptedException {
        long end = System.currentTimeMillis() + DRAIN_LIMIT_MS;
        while (!consumed.keySet().containsAll(acked.keySet()) && System.currentTimeMillis() < end) {
            Thread.sleep(100);
        }
    }

    private static void progress() {
        say(
                String.format(
                        "progress sent=%d acked=%d failed=%d consumed=%d",
                        next.get(), acked.size(), failed.get(), consumed.size()));
    }

    private static boolean result() {
        long lost = acked.keySet().stream().filter(body -> !consumed.containsKey(body)).count();
        long duplicated = consumed.values().stream().filter(times -> times > 1).count();
        StringBuilder by = new StringBuilder();
        new TreeMap<>(brokers)
                .forEach((name, n) -> by.append(by.length() > 0 ? "," : "").append(name + ":" + n));
        say(
                String.format(
                        "result acked=%d failed=%d consumed=%d lost=%d duplicated=%d"
                                + " longest_pause_ms=%d brokers=%s",
                        acked.size(),
                        failed.get(),
                        consumed.size(),
                        lost,
                        duplicated,
                        TimeUnit.NANOSECONDS.toMillis(longestPause.get()),
                        by));
        return lost == 0;
    }

    private static void say(String line) {
        System.out.println(line);
        System.out.flush();
    }
}
