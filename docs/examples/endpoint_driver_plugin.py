from twisted_exec.machines import DriverMaker

endpoint = DriverMaker("endpoint", "endpoint_driver")
