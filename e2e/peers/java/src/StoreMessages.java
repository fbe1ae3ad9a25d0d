import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendCallback;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;

/**
 * Fills a store with messages of every kind, and says what is in a store.
 *
 * <pre>
 * StoreMessages write PREFIX ROUND [small]   sends to topics that begin with PREFIX; ROUND varies
 *                                            the bodies; "small" leaves large bodies out
 * StoreMessages read GROUP TOPIC...          prints a JSON object a line: the ends of each queue
 *                                            and the group's offset in it, and each message
 * </pre>
 *
 * "write" also consumes PREFIX-Normal as group CG-PREFIX, so that there are consumer offsets, and
 * waits for delayed messages that are due soon. It prints the topics.
 */
public class StoreMessages {
    private static final String NAMESRV =
            System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876");
    private static final int TRIES = 40;
    private static final long WAIT_SECONDS = 60;

    public static void main(String[] arguments) throws Exception {
        List<String> rest = Arrays.asList(arguments).subList(1, arguments.length);
        switch (arguments[0]) {
            case "write":
                write(rest.get(0), Integer.parseInt(rest.get(1)), rest.contains("small"));
                break;
            case "read":
                read(rest.get(0), rest.subList(1, rest.size()));
                break;
            default:
                throw new IllegalArgumentException(arguments[0]);
        }
        System.exit(0);
    }

    private static void write(String prefix, int round, boolean small) throws Exception {
        DefaultMQProducer producer = new DefaultMQProducer("PID_" + prefix);
        producer.setNamesrvAddr(NAMESRV);
        producer.setInstanceName("store-" + prefix + round);
        producer.setSendMsgTimeout(15_000);
        producer.setMaxMessageSize(4 << 20);
        producer.start();
        Random random = new Random(round);
        String normal = prefix + "Normal", batch = prefix + "Batch", order = prefix + "Order";
        String delay = prefix + "Delay", big = prefix + "Big";
        first(producer, normal);
        for (int i = 0; i < 40; i++) {
            int[] sizes = small ? new int[] {1, 17, 100, 1000} : new int[] {1, 17, 1000, 3000, 30_000, 100_000};
            Message message =
                    new Message(normal, "Tag" + (char) ('A' + i % 3), body(random, sizes[i % sizes.length]));
            message.setKeys(Arrays.asList("key-" + round + "-" + i, "shared-key"));
            message.setFlag(i);
            message.putUserProperty("unicode", "订单-é-" + i);
            message.putUserProperty("round", Integer.toString(round));
            if (i % 10 == 9) {
                CountDownLatch sent = new CountDownLatch(1);
                AtomicInteger good = new AtomicInteger();
                producer.send(message, callback(sent, good));
                if (!sent.await(WAIT_SECONDS, TimeUnit.SECONDS) || good.get() != 1)
                    throw new IllegalStateException("an asynchronous send failed");
            } else {
                check(producer.send(message));
            }
        }
        first(producer, batch);
        List<Message> messages = new ArrayList<>();
        for (int i = 0; i < 20; i++)
            messages.add(new Message(batch, "B", "b" + i, body(random, 50 + i)));
        check(producer.send(messages));
        first(producer, order);
        for (int i = 0; i < 20; i++) {
            Message message = new Message(order, "O", "order-" + i % 4, body(random, 64));
            check(producer.send(message, (queues, m, key) -> queues.get((int) key % queues.size()), i % 4));
        }
        first(producer, delay);
        for (int level : new int[] {1, 1, 18}) {
            Message message = new Message(delay, "D", "level-" + level, body(random, 30));
            message.setDelayTimeLevel(level);
            check(producer.send(message));
        }
        List<String> topics = new ArrayList<>(Arrays.asList(normal, batch, order, delay));
        if (!small) {
            first(producer, big);
            check(producer.send(new Message(big, "Big", body(random, 3_900_000))));
            byte[] compressible = new byte[30_000];
            Arrays.fill(compressible, (byte) ('a' + round));
            check(producer.send(new Message(big, "Compressed", compressible)));
            topics.add(big);
        }
        producer.shutdown();
        consume(normal, "CG-" + prefix);
        awaitDelivered(delay, 3 * round);
        System.out.println(String.join(" ", topics));
    }

    /** A topic is made by the first send, which may have to be repeated while its route spreads. */
    private static void first(DefaultMQProducer producer, String topic) throws Exception {
        for (int i = 1; ; i++) {
            try {
                check(producer.send(new Message(topic, "First", "first".getBytes(StandardCharsets.UTF_8))));
                return;
            } catch (Exception e) {
                if (i == TRIES) throw e;
                Thread.sleep(500);
            }
        }
    }

    private static SendCallback callback(CountDownLatch sent, AtomicInteger good) {
        return new SendCallback() {
            @Override
            public void onSuccess(SendResult result) {
                good.addAndGet(result.getSendStatus() == SendStatus.SEND_OK ? 1 : 0);
                sent.countDown();
            }

            @Override
            public void onException(Throwable e) {
                sent.countDown();
            }
        };
    }

    private static void check(SendResult result) {
        if (result.getSendStatus() != SendStatus.SEND_OK)
            throw new IllegalStateException(result.toString());
    }

    private static byte[] body(Random random, int size) {
        byte[] body = new byte[size];
        random.nextBytes(body);
        return body;
    }

    /** Consumes what is there as a push consumer does, so that its offsets are stored. */
    private static void consume(String topic, String group) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(group);
        consumer.setNamesrvAddr(NAMESRV);
        consumer.setInstanceName("consume-" + group + System.nanoTime());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        AtomicInteger count = new AtomicInteger();
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (list, context) -> {
                            count.addAndGet(list.size());
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        consumer.start();
        for (long i = 0; count.get() < 41; i++) {
            if (i > WAIT_SECONDS * 10) throw new IllegalStateException("consumed " + count);
            Thread.sleep(100);
        }
        consumer.shutdown(); // stores the offsets
    }

    /** Waits until this many delayed messages were delivered. */
    private static void awaitDelivered(String topic, int expected) throws Exception {
        DefaultMQPullConsumer consumer = puller("await-" + topic);
        for (long i = 0; ; i++) {
            long delivered = 0;
            for (MessageQueue queue : consumer.fetchSubscribeMessageQueues(topic))
                delivered += consumer.maxOffset(queue);
            // With the first one of each round, which is not delayed.
            if (delivered >= expected) break;
            if (i > WAIT_SECONDS * 10) throw new IllegalStateException("delivered " + delivered);
            Thread.sleep(100);
        }
        consumer.shutdown();
    }

    private static DefaultMQPullConsumer puller(String group) throws Exception {
        DefaultMQPullConsumer consumer = new DefaultMQPullConsumer(group);
        consumer.setNamesrvAddr(NAMESRV);
        consumer.setInstanceName("read-" + System.nanoTime());
        consumer.setConsumerPullTimeoutMillis(20_000);
        consumer.start();
        return consumer;
    }

    private static void read(String group, List<String> topics) throws Exception {
        DefaultMQPullConsumer consumer = puller(group);
        for (String topic : topics) {
            for (MessageQueue queue : new TreeSet<>(queues(consumer, topic))) {
                long min = consumer.minOffset(queue), max = consumer.maxOffset(queue);
                System.out.printf(
                        "{\"topic\":%s,\"queue\":%d,\"min\":%d,\"max\":%d,\"consumed\":%d}%n",
                        text(topic), queue.getQueueId(), min, max, consumer.fetchConsumeOffset(queue, true));
                for (long offset = min; offset < max; ) {
                    PullResult result = consumer.pull(queue, "*", offset, 32);
                    if (result.getPullStatus() != PullStatus.FOUND)
                        throw new IllegalStateException(queue + " at " + offset + ": " + result);
                    for (MessageExt message : result.getMsgFoundList()) print(message);
                    offset = result.getNextBeginOffset();
                }
            }
        }
    }

    private static java.util.Set<MessageQueue> queues(DefaultMQPullConsumer consumer, String topic)
            throws Exception {
        for (int i = 1; ; i++) {
            try {
                return consumer.fetchSubscribeMessageQueues(topic);
            } catch (Exception e) {
                if (i == TRIES) throw e;
                Thread.sleep(500);
            }
        }
    }

    private static void print(MessageExt message) throws Exception {
        Map<String, String> properties = new TreeMap<>(message.getProperties());
        properties.remove("MIN_OFFSET");
        properties.remove("MAX_OFFSET");
        StringBuilder pairs = new StringBuilder();
        for (Map.Entry<String, String> property : properties.entrySet()) {
            if (pairs.length() > 0) pairs.append(',');
            pairs.append(text(property.getKey())).append(':').append(text(property.getValue()));
        }
        StringBuilder hash = new StringBuilder();
        for (byte b : MessageDigest.getInstance("SHA-256").digest(message.getBody()))
            hash.append(String.format("%02x", b));
        System.out.println(
                "{\"topic\":" + text(message.getTopic())
                        + ",\"queue\":" + message.getQueueId()
                        + ",\"offset\":" + message.getQueueOffset()
                        + ",\"commitLogOffset\":" + message.getCommitLogOffset()
                        + ",\"storeSize\":" + message.getStoreSize()
                        + ",\"msgId\":" + text(message.getMsgId())
                        + ",\"offsetMsgId\":" + text(((MessageClientExt) message).getOffsetMsgId())
                        + ",\"flag\":" + message.getFlag()
                        // Newer clients clear the bit of compression when they decompress.
                        + ",\"sysFlag\":" + (message.getSysFlag() & ~1)
                        + ",\"bornTimestamp\":" + message.getBornTimestamp()
                        + ",\"storeTimestamp\":" + message.getStoreTimestamp()
                        + ",\"reconsumeTimes\":" + message.getReconsumeTimes()
                        + ",\"preparedTransactionOffset\":" + message.getPreparedTransactionOffset()
                        + ",\"bodySize\":" + message.getBody().length
                        + ",\"bodySha256\":" + text(hash.toString())
                        + ",\"properties\":{" + pairs + "}}");
    }

    private static String text(String value) {
        StringBuilder text = new StringBuilder("\"");
        for (char c : value.toCharArray()) {
            if (c == '"' || c == '\\') text.append('\\').append(c);
            else if (c < ' ') text.append(String.format("\\u%04x", (int) c));
            else text.append(c);
        }
        return text.append('"').toString();
    }
}
