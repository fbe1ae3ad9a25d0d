import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Consumes a topic from its beginning with the stock push consumer, in a group of its own, until
 * COUNT different bodies came.
 *
 * <pre>
 * ConsumeAll TOPIC COUNT
 * </pre>
 *
 * Prints <code>result consumed=..</code> and exits 1 if they did not come in a minute.
 */
public class ConsumeAll {
    private static final long LIMIT_MS = 60_000;

    public static void main(String[] arguments) throws Exception {
        String topic = arguments[0];
        long count = Long.parseLong(arguments[1]);
        Set<String> bodies = ConcurrentHashMap.newKeySet();
        String run = Long.toHexString(System.currentTimeMillis());
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("GID_all_" + run);
        consumer.setNamesrvAddr(System.getenv().getOrDefault("NAMESRV_ADDR", "127.0.0.1:9876"));
        consumer.setInstanceName("all" + run);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(topic, "*");
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            for (MessageExt message : messages)
                                bodies.add(new String(message.getBody(), StandardCharsets.UTF_8));
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        consumer.start();
        long end = System.currentTimeMillis() + LIMIT_MS;
        while (bodies.size() < count && System.currentTimeMillis() < end) Thread.sleep(50);
        System.out.println("result consumed=" + bodies.size());
        System.out.flush();
        Runtime.getRuntime().halt(bodies.size() < count ? 1 : 0);
    }
}
