import com.alibaba.fastjson.JSON;
import com.alibaba.fastjson.JSONArray;
import com.alibaba.fastjson.JSONObject;
import java.io.File;
import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.TimeZone;
import org.apache.rocketmq.common.BrokerConfig;
import org.apache.rocketmq.common.UtilAll;
import org.apache.rocketmq.store.ConsumeQueue;
import org.apache.rocketmq.store.DefaultMessageStore;
import org.apache.rocketmq.store.MappedFileQueue;
import org.apache.rocketmq.store.config.MessageStoreConfig;
import org.apache.rocketmq.store.stats.BrokerStatsManager;

/** Lets the broker's own classes delete files: a case a line of standard input, what became of it a line of standard output. */
final class CleanFiles {
    private static final int FILE_SIZE = 1024;

    private CleanFiles() {}

    public static void main(String[] argv) throws Exception {
        List<String> told = new ArrayList<>();
        for (String line : new String(System.in.readAllBytes(), StandardCharsets.UTF_8).split("\n")) {
            JSONObject one = JSON.parseObject(line);
            JSONObject answer = new JSONObject();
            answer.put("before", System.currentTimeMillis());
            switch (one.getString("kind")) {
                case "when": when(one, answer); break;
                case "files": files(one, answer); break;
                case "pass": pass(one, answer); break;
                case "store": store(one, answer); break;
                default: throw new IllegalArgumentException(line);
            }
            answer.put("after", System.currentTimeMillis());
            told.add("=" + answer.toJSONString());
        }
        told.forEach(System.out::println);
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void when(JSONObject one, JSONObject answer) {
        TimeZone zone = TimeZone.getDefault();
        TimeZone.setDefault(TimeZone.getTimeZone(one.getString("zone")));
        try {
            answer.put("is", UtilAll.isItTimeToDo(one.getString("when")));
        } catch (NumberFormatException error) {
            answer.put("is", "NumberFormatException");
        } finally {
            TimeZone.setDefault(zone);
        }
    }

    private static void files(JSONObject one, JSONObject answer) throws Exception {
        Path folder = logOf(one.getJSONArray("ages"));
        MappedFileQueue queue = new MappedFileQueue(folder.toString(), FILE_SIZE, null);
        queue.load();
        int count = queue.deleteExpiredFileByTime(one.getLongValue("expired"), 0, 1000, one.getBooleanValue("immediately"));
        answer.put("deleted", count);
        answer.put("left", namesIn(folder));
    }

    /** CleanCommitLogService.run over a log of zeros that nobody recovered. */
    private static void pass(JSONObject one, JSONObject answer) throws Exception {
        Path log = logOf(one.getJSONArray("ages"));
        MessageStoreConfig config = configOf(log.getParent(), one);
        config.setMappedFileSizeCommitLog(FILE_SIZE);
        answer.put("percentBefore", percentOf(log));
        System.setProperty("rocketmq.broker.diskSpaceCleanForciblyRatio", one.getString("forcibly"));
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("x", true), null, new BrokerConfig());
        store.getCommitLog().load();
        if (one.getBooleanValue("manually")) {
            store.executeDeleteFilesManually();
        }
        run(store, "cleanCommitLogService");
        answer.put("left", namesIn(log));
        answer.put("percentAfter", percentOf(log));
    }

    /** A pass of both services over a store that was loaded. */
    private static void store(JSONObject one, JSONObject answer) throws Exception {
        Path folder = Paths.get(one.getString("store"));
        MessageStoreConfig config = configOf(folder, one);
        DefaultMessageStore store = new DefaultMessageStore(config, new BrokerStatsManager("x", true), null, new BrokerConfig());
        if (!store.load()) {
            throw new IOException("not loaded: " + folder);
        }
        JSONArray ages = one.getJSONArray("ages");
        File[] log = folder.resolve("commitlog").toFile().listFiles();
        java.util.Arrays.sort(log);
        for (int number = 0; number < log.length; number++) {
            log[number].setLastModified(System.currentTimeMillis() - ages.getLongValue(number));
        }
        answer.put("minOffsetsBefore", minOffsets(store));
        run(store, "cleanCommitLogService");
        run(store, "cleanConsumeQueueService");
        answer.put("left", namesIn(folder.resolve("commitlog")));
        answer.put("minPhyOffset", store.getMinPhyOffset());
        answer.put("minOffsets", minOffsets(store));
    }

    private static JSONObject minOffsets(DefaultMessageStore store) {
        JSONObject found = new JSONObject();
        for (Map<Integer, ConsumeQueue> queues : store.getConsumeQueueTable().values()) {
            for (ConsumeQueue queue : queues.values()) {
                found.put(queue.getTopic() + "/" + queue.getQueueId(), queue.getMinOffsetInQueue());
            }
        }
        return found;
    }

    private static MessageStoreConfig configOf(Path folder, JSONObject one) throws Exception {
        MessageStoreConfig config = new MessageStoreConfig();
        config.setStorePathRootDir(folder.toString());
        config.setStorePathCommitLog(folder.resolve("commitlog").toString());
        config.setDeleteCommitLogFilesInterval(0);
        config.setDeleteConsumeQueueFilesInterval(0);
        JSONObject settings = one.getJSONObject("settings");
        for (String name : settings.keySet()) {
            for (Method method : MessageStoreConfig.class.getMethods()) {
                if (method.getName().equalsIgnoreCase("set" + name)) {
                    method.invoke(config, settings.getObject(name, method.getParameterTypes()[0]));
                }
            }
        }
        return config;
    }

    private static Path logOf(JSONArray ages) throws IOException {
        Path folder = Files.createTempDirectory("clean").resolve("commitlog");
        Files.createDirectory(folder);
        for (int number = 0; number < ages.size(); number++) {
            Path file = folder.resolve(String.format("%020d", (long) number * FILE_SIZE));
            Files.write(file, new byte[FILE_SIZE]);
            if (!file.toFile().setLastModified(System.currentTimeMillis() - ages.getLongValue(number))) {
                throw new IOException(file.toString());
            }
        }
        return folder;
    }

    private static List<String> namesIn(Path folder) {
        List<String> names = new ArrayList<>();
        Collections.addAll(names, folder.toFile().list());
        Collections.sort(names);
        return names;
    }

    private static long percentOf(Path folder) {
        return Math.round(UtilAll.getDiskPartitionSpaceUsedPercent(folder.toString()) * 100);
    }

    private static void run(DefaultMessageStore store, String service) throws Exception {
        Field field = DefaultMessageStore.class.getDeclaredField(service);
        field.setAccessible(true);
        Object found = field.get(store);
        Method run = found.getClass().getDeclaredMethod("run");
        run.setAccessible(true);
        run.invoke(found);
    }
}
