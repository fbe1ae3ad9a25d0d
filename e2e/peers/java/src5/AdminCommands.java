import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.exception.MQClientException;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.tools.command.MQAdminStartup;

import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.security.Permission;
import java.util.*;
import java.util.concurrent.*;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Runs commands of the real admin tool (mqadmin) in one JVM, as files say, a command a line:
 *
 * <pre>
 * # a comment
 * topicRoute -n %N% -t KitRemoting
 * expect brokerDatas                  the last output must match this regular expression
 * var ID OffsetID:\s+([0-9A-F]+)      group 1 of a match in the last output becomes %ID%
 * sleep 1500                          milliseconds
 * </pre>
 *
 * %N% is the name server address, %B%, %BN% and %C% the broker's address, its name and the
 * cluster's name. A command that prints a stack trace or the usage text fails. Prints a
 * tab-separated line per command. Needs -Djava.security.manager=allow, for a command may call
 * System.exit.
 */
public class AdminCommands {
    private static final int OUTPUT_LINES_SHOWN = 3;
    private static final int OUTPUT_WIDTH_SHOWN = 160;

    private static final PrintStream REAL = System.out;
    private static final long LIMIT_SECONDS = Long.parseLong(env("CMD_TIMEOUT", "30"));

    private static volatile boolean finished; // from then on an exit is an exit

    private final Map<String, String> variables = new LinkedHashMap<>();
    private int passed;
    private int failed;
    private String output = "";
    private String pending; // the line of the last command, until its "expect" lines are read
    private String state = "";
    private String why = "";

    public static void main(String[] files) throws Exception {
        System.setProperty("rocketmq.namesrv.addr", env("NAMESRV_ADDR", "127.0.0.1:9876"));
        System.setSecurityManager(new NoExit());
        if (env("LIVE", "").equals("1")) startLiveClients();
        AdminCommands commands = new AdminCommands();
        for (String file : files)
            for (String line : Files.readAllLines(Paths.get(file))) commands.line(line.trim());
        commands.report();
        REAL.println(commands.passed + " passed, " + commands.failed + " failed");
        finished = true;
        Runtime.getRuntime().halt(commands.failed > 0 ? 1 : 0);
    }

    private AdminCommands() {
        variables.put("N", env("NAMESRV_ADDR", "127.0.0.1:9876"));
        variables.put("B", env("BROKER_ADDR", "127.0.0.1:10911"));
        variables.put("BN", env("BROKER_NAME", "broker-a"));
        variables.put("C", env("CLUSTER", "DefaultCluster"));
    }

    private void line(String line) throws Exception {
        if (line.isEmpty() || line.startsWith("#")) return;
        String rest = line.substring(line.indexOf(' ') + 1);
        if (line.startsWith("expect ")) {
            expect(substitute(rest));
        } else if (line.startsWith("var ")) {
            capture(rest);
        } else if (line.startsWith("sleep ")) {
            Thread.sleep(Long.parseLong(rest));
        } else {
            report();
            run(substitute(line));
        }
    }

    private String substitute(String text) {
        for (Map.Entry<String, String> variable : variables.entrySet())
            text = text.replace("%" + variable.getKey() + "%", variable.getValue());
        return text;
    }

    private void expect(String pattern) {
        if (Pattern.compile(pattern, Pattern.DOTALL).matcher(output).find()) return;
        state = "not ok";
        why += " [expected /" + pattern + "/]";
    }

    private void capture(String rest) {
        String[] parts = rest.split(" ", 2);
        Matcher matcher = Pattern.compile(parts[1]).matcher(output);
        boolean found = matcher.find();
        variables.put(parts[0], found ? matcher.group(1) : "UNSET");
        if (!found) {
            state = "not ok";
            why += " [no " + parts[0] + " in the output]";
        }
    }

    private void report() {
        if (pending == null) return;
        if (state.equals("ok")) passed++;
        else failed++;
        REAL.println(state + "\t" + pending + "\t" + firstLines() + why);
        pending = null;
        why = "";
    }

    private void run(String command) throws IOException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream stream = new PrintStream(bytes, true, StandardCharsets.UTF_8);
        System.setOut(stream);
        System.setErr(stream);
        ExecutorService executor =
                Executors.newSingleThreadExecutor(
                        task -> {
                            Thread thread = new Thread(task);
                            thread.setDaemon(true);
                            return thread;
                        });
        Future<?> done = executor.submit(() -> MQAdminStartup.main0(words(command), null));
        state = outcome(done, stream);
        executor.shutdownNow();
        stream.flush();
        System.setOut(REAL);
        output = bytes.toString(StandardCharsets.UTF_8);
        pending = command;
        if (!state.equals("ok")) return;
        if (output.contains("Exception") && output.contains("\tat ")) state = "exception";
        else if (output.contains("The sub command") && output.contains("not exist"))
            state = "no such command";
        else if (output.startsWith("usage: mqadmin")) state = "usage";
    }

    private static String outcome(Future<?> done, PrintStream stream) {
        try {
            done.get(LIMIT_SECONDS, TimeUnit.SECONDS);
            return "ok";
        } catch (TimeoutException e) {
            done.cancel(true);
            return "timeout";
        } catch (InterruptedException e) {
            return "interrupted";
        } catch (ExecutionException e) {
            if (e.getCause() instanceof Exit) {
                int code = ((Exit) e.getCause()).code;
                return code == 0 ? "ok" : "exit " + code;
            }
            e.getCause().printStackTrace(stream);
            return "threw";
        }
    }

    private String firstLines() {
        StringJoiner shown = new StringJoiner(" | ");
        int count = 0;
        for (String line : output.split("\n")) {
            String text = line.trim().replaceAll("\\s+", " ");
            if (text.isEmpty() || text.startsWith("at ") || text.contains("RocketMQLog:WARN"))
                continue;
            if (count++ == OUTPUT_LINES_SHOWN) break;
            shown.add(text.substring(0, Math.min(text.length(), OUTPUT_WIDTH_SHOWN)));
        }
        return shown.toString();
    }

    private static String[] words(String command) {
        List<String> words = new ArrayList<>();
        Matcher matcher = Pattern.compile("'([^']*)'|(\\S+)").matcher(command);
        while (matcher.find())
            words.add(matcher.group(1) != null ? matcher.group(1) : matcher.group(2));
        return words.toArray(new String[0]);
    }

    /** A producer PID_live and a consumer GID_live, for the commands that ask about connections. */
    private static void startLiveClients() throws MQClientException, InterruptedException {
        String namesrv = env("NAMESRV_ADDR", "127.0.0.1:9876");
        CountDownLatch consumed = new CountDownLatch(1);
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("GID_live");
        consumer.setNamesrvAddr(namesrv);
        consumer.setInstanceName("liveC");
        consumer.subscribe("KitRemoting", "live");
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.registerMessageListener(
                (MessageListenerConcurrently)
                        (messages, context) -> {
                            consumed.countDown();
                            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                        });
        consumer.start();
        DefaultMQProducer producer = new DefaultMQProducer("PID_live");
        producer.setNamesrvAddr(namesrv);
        producer.setInstanceName("liveP");
        producer.setSendMsgTimeout(20000);
        producer.start();
        Thread sending = new Thread(() -> sendForEver(producer));
        sending.setDaemon(true);
        sending.start();
        consumed.await(60, TimeUnit.SECONDS);
        Thread.sleep(6000); // a consumer's offsets reach the broker every 5 s
    }

    private static void sendForEver(DefaultMQProducer producer) {
        byte[] body = "hello".getBytes(StandardCharsets.UTF_8);
        while (true) {
            try {
                producer.send(new Message("KitRemoting", "live", "livekey", body));
                Thread.sleep(500);
            } catch (InterruptedException e) {
                return;
            } catch (Exception e) {
                REAL.println("# live producer: " + e);
            }
        }
    }

    private static String env(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    /** Thrown in place of an exit of the process. */
    private static class Exit extends SecurityException {
        final int code;

        Exit(int code) {
            super("exit " + code);
            this.code = code;
        }
    }

    private static class NoExit extends SecurityManager {
        @Override
        public void checkPermission(Permission permission) {
            String name = permission.getName();
            if (name.startsWith("exitVM") && !finished)
                throw new Exit(Integer.parseInt(name.substring(name.indexOf('.') + 1)));
        }

        @Override
        public void checkPermission(Permission permission, Object context) {
            checkPermission(permission);
        }
    }
}
