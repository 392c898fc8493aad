import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.rocketmq.remoting.protocol.RemotingSerializable;

/**
 * Lets the broker's own code decode texts of config files: a line "CLASS TAB BASE64" of standard input, a line of standard output:
 * "=" and the decoded object as the broker encodes it, in Base64, or "!" and the class of the exception.
 */
final class DecodeConfigs {
    private DecodeConfigs() {}

    public static void main(String[] argv) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            String[] told = line.split("\t", -1);
            String text = new String(Base64.getDecoder().decode(told[1]), StandardCharsets.UTF_8);
            String answer;
            try {
                String json = RemotingSerializable.toJson(RemotingSerializable.fromJson(text, Class.forName(told[0])), false);
                answer = "=" + Base64.getEncoder().encodeToString(json.getBytes(StandardCharsets.UTF_8));
            } catch (Throwable error) {
                answer = "!" + error.getClass().getName();
            }
            System.out.println(answer);
            System.out.flush();
        }
        Runtime.getRuntime().halt(0);
    }
}
