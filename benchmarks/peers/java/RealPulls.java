import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.filter.ConsumerFilterManager;
import org.apache.rocketmq.broker.filter.ExpressionMessageFilter;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.MQVersion;
import org.apache.rocketmq.common.filter.FilterAPI;
import org.apache.rocketmq.common.protocol.RequestCode;
import org.apache.rocketmq.common.protocol.ResponseCode;
import org.apache.rocketmq.common.protocol.header.PullMessageRequestHeader;
import org.apache.rocketmq.common.sysflag.PullSysFlag;
import org.apache.rocketmq.remoting.netty.NettyClientConfig;
import org.apache.rocketmq.remoting.netty.NettyRemotingClient;
import org.apache.rocketmq.remoting.netty.NettyServerConfig;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;
import org.apache.rocketmq.store.GetMessageResult;
import org.apache.rocketmq.store.MessageFilter;
import org.apache.rocketmq.store.MessageStore;
import org.apache.rocketmq.store.config.MessageStoreConfig;

/**
 * Times the real broker's answers to given pulls. One line of JSON a result on standard output.
 *
 * broker STORE LOG_FILE_BYTES QUEUE_FILE_BYTES MEMORY PREFIX QUEUES MAX
 *     starts a broker on the store, prints its port, and answers each line of standard input (the words of a question, with tabs between
 *     them) by getMessage, on one thread; ends with its standard input. The store is left as a killed broker leaves it.
 * client PORT PREFIX QUEUES MAX QUESTION...
 *     asks the broker over loopback.
 *
 * The words of a question: filter type (empty for none), expression, file of pulls, seconds of a run, runs. Each run goes over all pulls of
 * the file until its time is over; something like it before them warms up. Queue q is queue q % QUEUES of topic PREFIX and q / QUEUES in two digits.
 */
public final class RealPulls {
    static final String GROUP = "bench";
    static final int CONNECTIONS = 8;
    static final int IN_FLIGHT = 8;
    static final int WARM_UP = 2; // runs: most of what both ends call is compiled by then
    static final int PULL_BYTES = 20; // queue, offset, and a time that nobody here needs

    final String type;
    final String expression;
    final long nanos;
    final int runs;
    final int max;
    final String[] topics;
    final int[] topic;
    final int[] queueId;
    final long[] offset;

    RealPulls(String prefix, int queues, int max, String[] words, int at) throws Exception {
        type = words[at];
        expression = words[at + 1];
        nanos = (long) (Double.parseDouble(words[at + 3]) * 1e9);
        runs = Integer.parseInt(words[at + 4]);
        this.max = max;
        ByteBuffer rows = ByteBuffer.wrap(Files.readAllBytes(Path.of(words[at + 2])));
        int count = rows.capacity() / PULL_BYTES;
        topic = new int[count];
        queueId = new int[count];
        offset = new long[count];
        int most = 0;
        for (int i = 0; i < count; i++) {
            int queue = rows.getInt(i * PULL_BYTES);
            topic[i] = queue / queues;
            queueId[i] = queue % queues;
            offset[i] = rows.getLong(i * PULL_BYTES + 4);
            most = Math.max(most, topic[i]);
        }
        topics = new String[most + 1];
        for (int i = 0; i <= most; i++) {
            topics[i] = prefix + String.format("%02d", i);
        }
    }

    // ---- the store

    String askStore(MessageStore store, ConsumerFilterManager manager) throws Exception {
        MessageFilter[] filters = new MessageFilter[topics.length];
        for (int i = 0; i < topics.length && !type.isEmpty(); i++) {
            filters[i] = new ExpressionMessageFilter(FilterAPI.build(topics[i], expression, type),
                ConsumerFilterManager.build(topics[i], GROUP, expression, type, 1L), manager);
        }
        long[] given = new long[3];
        List<Object> rates = new ArrayList<>();
        for (int run = 0; run <= runs; run++) {
            long start = System.nanoTime();
            long passes = 0;
            do {
                given = pass(store, filters);
                passes++;
            } while (System.nanoTime() - start < nanos);
            if (run > 0) {
                rates.add(passes * offset.length / ((System.nanoTime() - start) / 1e9));
            }
        }
        return J.w(J.m("pullsPerSecond", rates, "messages", given[0], "bytes", given[1], "nextOffsets", given[2]));
    }

    long[] pass(MessageStore store, MessageFilter[] filters) {
        long messages = 0;
        long bytes = 0;
        long next = 0;
        for (int i = 0; i < offset.length; i++) {
            GetMessageResult result = store.getMessage(GROUP, topics[topic[i]], queueId[i], offset[i], max, filters[topic[i]]);
            messages += result.getMessageCount();
            bytes += result.getBufferTotalSize();
            next += result.getNextBeginOffset();
            result.release();
        }
        return new long[] {messages, bytes, next};
    }

    // ---- the port

    String askPort(String address) throws Exception {
        AtomicLong answered = new AtomicLong();
        AtomicReference<String> failed = new AtomicReference<>();
        long end = System.nanoTime() + nanos * (WARM_UP + runs);
        List<Thread> threads = new ArrayList<>();
        for (int k = 0; k < CONNECTIONS; k++) {
            NettyRemotingClient client = new NettyRemotingClient(new NettyClientConfig());
            client.start();
            int first = (int) ((long) k * offset.length / CONNECTIONS);
            Thread thread = new Thread(() -> keepAsking(client, address, first, end, answered, failed));
            threads.add(thread);
            thread.start();
        }
        List<Object> rates = new ArrayList<>();
        Thread.sleep(WARM_UP * nanos / 1_000_000);
        for (int run = 0; run < runs; run++) {
            long start = System.nanoTime();
            long before = answered.get();
            Thread.sleep(nanos / 1_000_000);
            rates.add((answered.get() - before) / ((System.nanoTime() - start) / 1e9));
        }
        for (Thread thread : threads) {
            thread.join();
        }
        if (failed.get() != null) {
            throw new IllegalStateException(failed.get());
        }
        return J.w(J.m("pullsPerSecond", rates));
    }

    void keepAsking(NettyRemotingClient client, String address, int first, long end, AtomicLong answered, AtomicReference<String> failed) {
        Semaphore room = new Semaphore(IN_FLIGHT);
        try {
            for (int i = first; System.nanoTime() < end && failed.get() == null; i = (i + 1) % offset.length) {
                room.acquire();
                client.invokeAsync(address, pull(i), 10_000, future -> {
                    RemotingCommand answer = future.getResponseCommand();
                    if (answer != null && isAnswer(answer.getCode())) {
                        answered.incrementAndGet();
                    } else {
                        failed.set(answer == null ? "no answer" : "code " + answer.getCode() + ": " + answer.getRemark());
                    }
                    room.release();
                });
            }
        } catch (Exception e) {
            failed.set(e.toString());
        }
    }

    static boolean isAnswer(int code) {
        return code == ResponseCode.SUCCESS || code == ResponseCode.PULL_NOT_FOUND || code == ResponseCode.PULL_RETRY_IMMEDIATELY;
    }

    RemotingCommand pull(int i) {
        PullMessageRequestHeader header = new PullMessageRequestHeader();
        header.setConsumerGroup(GROUP);
        header.setTopic(topics[topic[i]]);
        header.setQueueId(queueId[i]);
        header.setQueueOffset(offset[i]);
        header.setMaxMsgNums(max);
        header.setSysFlag(PullSysFlag.buildSysFlag(false, false, true, false));
        header.setCommitOffset(0L);
        header.setSuspendTimeoutMillis(0L);
        header.setSubscription(expression);
        header.setSubVersion(0L);
        header.setExpressionType(type.isEmpty() ? "TAG" : type);
        return RemotingCommand.createRequestCommand(RequestCode.PULL_MESSAGE, header);
    }

    // ---- the broker

    static BrokerController started(String[] a, int port) throws Exception {
        StoreOracle.overridePhysicalMemory(Long.parseLong(a[4]));
        BrokerConfig config = new BrokerConfig();
        config.setBrokerIP1("127.0.0.1");
        MessageStoreConfig store = new MessageStoreConfig();
        store.setStorePathRootDir(a[1]);
        store.setStorePathCommitLog(Path.of(a[1], "commitlog").toString());
        store.setMappedFileSizeCommitLog(Integer.parseInt(a[2]));
        store.setMappedFileSizeConsumeQueue(Integer.parseInt(a[3]));
        store.setFileReservedTime(876_000); // nothing is cleaned away
        store.setHaListenPort(port + 1);
        NettyServerConfig server = new NettyServerConfig();
        server.setListenPort(port);
        BrokerController broker = new BrokerController(config, server, new NettyClientConfig(), store);
        if (!broker.initialize()) {
            throw new IllegalStateException("the broker does not load the store");
        }
        Loopback.bind(broker);
        LiveOracle.topics(broker);
        broker.start();
        return broker;
    }

    static void serve(String[] a) throws Exception {
        int port = Loopback.freeBrokerPort();
        BrokerController broker = started(a, port);
        System.out.println(J.w(J.m("port", port)));
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            RealPulls pulls = new RealPulls(a[5], Integer.parseInt(a[6]), Integer.parseInt(a[7]), line.split("\t"), 0);
            System.out.println(pulls.askStore(broker.getMessageStore(), broker.getConsumerFilterManager()));
        }
    }

    public static void main(String[] a) {
        System.setProperty(RemotingCommand.REMOTING_VERSION_KEY, Integer.toString(MQVersion.CURRENT_VERSION));
        StoreOracle.quietLogs();
        int status = 0;
        try {
            if (a[0].equals("broker")) {
                serve(a);
            } else {
                RealPulls pulls = new RealPulls(a[2], Integer.parseInt(a[3]), Integer.parseInt(a[4]), a, 5);
                System.out.println(pulls.askPort("127.0.0.1:" + a[1]));
            }
        } catch (Throwable e) {
            System.err.println(e);
            status = 1;
        }
        System.out.flush();
        Runtime.getRuntime().halt(status); // not all of the broker's threads are daemons
    }
}
