import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.concurrent.ConcurrentHashMap;

/** Prints the iteration order of Java's maps, a JSON object a line; java MapOrders.java > map_orders.jsonl makes the file beside this one. */
public class MapOrders {
    private static String json(Iterable<String> texts) {
        List<String> quoted = new ArrayList<>();
        for (String text : texts) {
            quoted.add("\"" + text + "\"");
        }
        return "[" + String.join(",", quoted) + "]";
    }

    private static void print(String map, int capacity, Map<String, Integer> made, List<String> keys) {
        for (String key : keys) {
            made.put(key, 0);
        }
        System.out.printf("{\"map\":\"%s\",\"capacity\":%d,\"put\":%s,\"order\":%s}%n", map, capacity, json(keys), json(made.keySet()));
    }

    public static void main(String[] arguments) {
        Random random = new Random(7);
        for (int size : new int[] {1, 5, 11, 12, 13, 24, 25, 47, 48, 49, 97, 200}) {
            List<String> keys = new ArrayList<>();
            for (int number = 0; number < size; number++) {
                keys.add("key" + random.nextInt(100_000));
            }
            print("HashMap", 16, new HashMap<>(), keys);
            print("ConcurrentHashMap", 32, new ConcurrentHashMap<>(32), keys);
        }
        // keys of few buckets: with the ninth key of one bucket a map of fewer than 64 buckets grows
        for (int low : new int[] {0, 3, 15}) {
            for (int size = 7; size <= 11; size++) {
                List<String> keys = new ArrayList<>();
                for (int number = 0; keys.size() < size; number++) {
                    int code = ("c" + number).hashCode();
                    if (((code ^ (code >>> 16)) & 15) == low) {
                        keys.add("c" + number);
                    }
                }
                print("HashMap", 16, new HashMap<>(), keys);
            }
        }
        for (int[] one : new int[][] {{512, 767}, {512, 768}, {512, 769}, {1024, 1535}, {1024, 1536}, {1024, 1537}, {1024, 3200}}) {
            List<String> keys = new ArrayList<>();
            for (int number = 0; number < one[1]; number++) {
                keys.add("t" + random.nextInt(1_000_000));
            }
            print("ConcurrentHashMap", one[0], new ConcurrentHashMap<>(one[0]), keys);
        }
    }
}
