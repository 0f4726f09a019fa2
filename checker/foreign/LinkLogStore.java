package checker;

import io.delta.storage.HadoopFileSystemLogStore;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.CopyOption;
import java.nio.file.Files;
import java.nio.file.OpenOption;
import java.nio.file.Paths;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import java.util.Iterator;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Delta's log on a local disk. A hard link fails if its name exists, so of two processes only one gets a version. Delta's own
 *  log store for local disks looks first and renames then. */
public class LinkLogStore extends HadoopFileSystemLogStore {
  public LinkLogStore(Configuration configuration) {
    super(configuration);
  }

  public void write(Path path, Iterator actions, Boolean overwrite, Configuration configuration)
      throws IOException {
    java.nio.file.Path target = Paths.get(path.toUri().getPath(), new String[0]);
    java.nio.file.Path draft = target.resolveSibling("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
    StringBuilder lines = new StringBuilder();
    while (actions.hasNext()) {
      lines.append((String) actions.next()).append("\n");
    }
    Files.createDirectories(target.getParent(), new FileAttribute[0]);
    Files.write(draft, lines.toString().getBytes(StandardCharsets.UTF_8), new OpenOption[0]);
    if (overwrite.booleanValue()) {
      Files.move(draft, target, new CopyOption[] {StandardCopyOption.REPLACE_EXISTING});
      return;
    }
    try {
      Files.createLink(target, draft);
    } finally {
      Files.delete(draft);
    }
  }

  public Boolean isPartialWriteVisible(Path path, Configuration configuration) {
    return Boolean.FALSE;
  }
}
