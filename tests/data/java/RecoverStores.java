import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;

/**
 * Lets the broker's own code recover many stores in one process: a line "STORE TAB FILE" of standard input, a line "=done" or
 * "=CAUSE" of standard output. It calls the same function as the harness's `store recover`.
 */
final class RecoverStores {
    private RecoverStores() {}

    public static void main(String[] argv) throws Exception {
        Method quiet = Class.forName("StoreOracle").getDeclaredMethod("quietLogs");
        Method recover = Class.forName("StoreOracle").getDeclaredMethod("recover", Map.class);
        quiet.setAccessible(true);
        recover.setAccessible(true);
        quiet.invoke(null);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] told = line.split("\t");
            Map<String, String> arguments = new HashMap<>();
            arguments.put("store", told[0]);
            arguments.put("out", told[1]);
            arguments.put("startlimit", argv[0]);
            try {
                recover.invoke(null, arguments);
                System.out.println("=done");
            } catch (InvocationTargetException error) {
                System.out.println("=" + error.getCause());
            }
            System.out.flush();
        }
        Runtime.getRuntime().halt(0); // the stores' threads are not all daemons
    }
}
