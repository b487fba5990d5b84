// What the Admin of the newest Java client says of a streams group (KIP-1071).
//
//   BOOTSTRAP GROUP            its type and state as listed; state, members, tasks, topics as described
//   BOOTSTRAP GROUP delete     delete it, and list what is left
//
// The last line on stdout is JSON.

import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.admin.ListGroupsOptions;
import org.apache.kafka.clients.admin.StreamsGroupDescription;

public final class StreamsGroupAdmin {
    public static void main(String[] arguments) throws Exception {
        String group = arguments[1];
        Properties settings = new Properties();
        settings.put(AdminClientConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
        try (Admin admin = Admin.create(settings)) {
            if (arguments.length > 2) {
                admin.deleteStreamsGroups(List.of(group)).all().get();
            }
            List<String> listed = admin.listGroups(ListGroupsOptions.forStreamsGroups()).all().get().stream()
                .map(each -> "\"" + each.groupId() + " " + each.type().orElseThrow() + " " + each.groupState().orElseThrow() + "\"")
                .collect(Collectors.toList());
            if (arguments.length > 2) {
                System.out.println("{\"listed\": " + listed + "}");
                return;
            }
            Map<String, StreamsGroupDescription> found = admin.describeStreamsGroups(List.of(group)).all().get();
            StreamsGroupDescription described = found.get(group);
            int active = described.members().stream().flatMap(member -> member.assignment().activeTasks().stream())
                .mapToInt(tasks -> tasks.partitions().size()).sum();
            int standby = described.members().stream().flatMap(member -> member.assignment().standbyTasks().stream())
                .mapToInt(tasks -> tasks.partitions().size()).sum();
            int committed = admin.listStreamsGroupOffsets(Map.of(group, new org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec()))
                .partitionsToOffsetAndMetadata(group).get().size();
            System.out.println("{\"listed\": " + listed + ", \"state\": \"" + described.groupState() + "\", \"members\": "
                + described.members().size() + ", \"active\": " + active + ", \"standby\": " + standby
                + ", \"subtopologies\": " + described.subtopologies().size() + ", \"committed\": " + committed + "}");
        }
    }

    private StreamsGroupAdmin() { }
}
