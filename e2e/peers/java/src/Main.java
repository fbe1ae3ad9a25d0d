/**
 * Runs the scenarios whose names match ONLY (a regular expression; all when it is not set) and
 * prints "ok NAME" or "not ok NAME: why" for each. With --list it prints the names.
 */
public class Main extends Kit {
    public static void main(String[] arguments) throws Exception {
        SendScenarios.add();
        ConsumeScenarios.add();
        PullScenarios.add();
        AdminScenarios.add();
        Compat.add();
        if (arguments.length > 0 && arguments[0].equals("--list")) {
            SC.keySet().forEach(System.out::println);
            return;
        }
        run();
    }
}
